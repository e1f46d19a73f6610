"""K networks around a module: the noise, two samplers, passes, inspection."""
