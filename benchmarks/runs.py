"""Every measurement whose file is in ``benchmarks/results``: its command, its time, its tables.

The one declaration of each: the report is a loop over them. Nothing is imported here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    file: str  # with its figures
    command: str  # what follows "python benchmarks/"
    time: str  # how long that takes from the beginning, to follow "about"
    section: str = ""  # of an appendix; without one it is in other pages alone
    title: str = ""  # its heading there
    tables: tuple[str, ...] = ()  # what the appendix shows of it, of reporting.tables.TABLES
    minus: str = ""  # what its table of differences is called,
    beside: str = ""  # and the file that is subtracted
    how: str = ""  # what the command does not say


TASKS = "mnist_tasks.py --preset paper"
IN_PARTS = "in parts"
OF_TWO = "--classes 2 --tasks 20 --n-labels 5 10 20 40 --methods ours 'NT-Xent*' 'VICReg*'"
RECOMMENDED = "--methods xavier/fcn/ours+coherence features+logistic xavier/fcn/scratch"
COHERENT = f"{TASKS} {RECOMMENDED} --rivals rbf-svm label-spreading"

MAIN = "Tables 1 and 2"
KERNELS = "How the kernels are put together"
APPENDIX = "The appendix, and the theorems"
RIVALS = "Rivals"
FASHION_MNIST = "Fashion-MNIST"
FRESH = "On ten runs of their own"
CONVNETS = "A convolutional network"

QUICK_ONES = "--methods 'Emb*' 'Mini*' 'label*'"
FROZEN = "by commit 19e01dd1"
FIXMATCH_OF_TWO = f"FixMatch {FROZEN} with `classes` in its script set to 2, one task a run"
BACK_TO_BACK = f"the products alone {FROZEN}"
WITH_SETFIT = "--methods EmbeddingClassifier 'logistic, C = 100' SetFit"
SETFIT_NEEDS = "with `pip install setfit`, by commit 5c284e72"
OF_AUGMENTED = f"`augmented-gradients-svm` {FROZEN}"
AUGMENTED = f"{IN_PARTS}; {OF_AUGMENTED}"
OF_TASKS = ("against", "accuracy")
PAIR = "--methods xavier/fcn/ours xavier/fcn/scratch"
DIGITS, GRADED = "--augmentation digits", "--neighbors gradients"
IMAGES = (
    f"{DIGITS} {GRADED} {RECOMMENDED} --rivals label-spreading shared-label-spreading "
    "'gradients-*' augmented-gradients-svm umap-logistic"
)
TEN_WAY = IMAGES.replace("features+logistic", "'features*'")
TEN_RUNS = f"{TASKS} --first-run 8 --runs 10"
ROWS = f"{RECOMMENDED} --rivals rbf-svm label-spreading shared-label-spreading umap-logistic"
FASHION, OF_GRADIENTS = "--dataset fashion-mnist", "gradients-svm gradients-label-spreading"
ON_DIGITS = "The ten digits themselves"
AVERAGED = "with the mean of the kernels of L_uni in place of their sum"
MEAN_MINUS_SUM = "The mean of the kernels minus their sum"
WITHOUT = "With augmentation minus without"
HOUR = (
    "--preset hour --methods 'views: *' 'NT-Xent: *' 'fresh weights, strong views' FixMatch "
    "--long-n-labels 25"
)
OF_CONVNET = "--methods convnet/ours+coherence convnet/features+logistic"

RUNS = (
    Run("mnist-full.json", TASKS, "five hours and more on 2 cores", MAIN,
        "Five networks from Xavier's and He's weights", ("accuracy", "task_std"),
        how=f"{IN_PARTS}; the first run with `--rivals rbf-svm label-spreading` as well"),
    Run("mnist-batch-norm.json",
        f"{TASKS} --epochs 1 --n-perturbations 64 --n-labels 5 20 {PAIR} xavier/fcn+bn/ours "
        "xavier/fcn+bn/scratch", "half an hour on 2 cores", MAIN,
        "The paper's objective with batch normalization, which the paper lacks: one pass, K = 64",
        ("gain",), how=IN_PARTS),
    Run("mnist-mean-of-kernels.json", f"{TASKS} --kernels mean {PAIR}", "three hours on 2 cores",
        KERNELS, f"Table 1, Xavier, {AVERAGED}", ("gain",), minus=MEAN_MINUS_SUM,
        beside="mnist-full.json", how=IN_PARTS),
    Run("degeneracies.json", "degeneracies.py", "two hours and more on 2 cores", APPENDIX,
        "Degenerate softmax and dead neurons", ("degeneracies",)),
    Run("degeneracies-mean-of-kernels.json",
        "degeneracies.py --kernels mean", "two hours on 2 cores", APPENDIX,
        f"Degenerate softmax and dead neurons {AVERAGED}", ("degeneracies",), how="two settings"),
    Run("degeneracies-he.json", "degeneracies.py --settings 0.4,1 --init he --runs 4",
        "three hours on 2 cores", APPENDIX,
        "Degenerate softmax and dead neurons, from He's weights", ("degeneracies",), how=FROZEN),
    Run("scale-and-weight.json", "scale_and_weight.py", "three hours on 2 cores", APPENDIX,
        "Scale s and weight lambda", ("scale_and_weight",), how=IN_PARTS),
    Run("scale-and-weight-mean-of-kernels.json",
        "scale_and_weight.py --kernels mean --n-perturbations 256", "five hours on 2 cores",
        APPENDIX, f"Scale s and weight lambda {AVERAGED}", ("scale_and_weight",),
        how=IN_PARTS),
    Run("theorems.json", "theorems.py", "a minute on one core", APPENDIX, "The theorems",
        ("theorems",)),
    Run("mnist-images.json", f"{TEN_RUNS} {IMAGES}", "two hours on 2 cores", FRESH,
        "MNIST, told that rows are images", OF_TASKS, how=AUGMENTED),
    Run("mnist-ten-way-images.json", f"{TEN_RUNS} --classes 10 --n-labels 1 4 10 100 {TEN_WAY}",
        "two hours on 2 cores", FRESH, f"{ON_DIGITS}, told that rows are images", OF_TASKS,
        how=AUGMENTED),
    Run("mnist-rows.json", f"{TEN_RUNS} {ROWS}", "an hour on 2 cores", FRESH, "MNIST, not told so",
        OF_TASKS),
    Run("mnist-ten-way-rows.json", f"{TEN_RUNS} --classes 10 --n-labels 1 4 10 100 {ROWS}",
        "an hour on 2 cores", FRESH, f"{ON_DIGITS}, not told so", OF_TASKS),
    Run("mnist-ten-way-tuned.json",
        f"{TEN_RUNS} --classes 10 --n-labels 1 4 10 100 --methods xavier/fcn/scratch "
        "--rivals tuned-scratch", "a quarter of an hour on 2 cores", FRESH,
        f"{ON_DIGITS}, from scratch, tuned for them", OF_TASKS, how=FROZEN),
    Run("fashion-coherence.json", f"{COHERENT} {FASHION}", "40 minutes on 2 cores", FASHION_MNIST,
        "Fashion-MNIST, from pixels", OF_TASKS),
    Run("fashion-gradients.json", f"{COHERENT} {OF_GRADIENTS} {FASHION} {GRADED} --separation 4",
        "40 minutes on 2 cores", FASHION_MNIST, "Fashion-MNIST, with HOG features", OF_TASKS,
        minus="By HOG features at a separation of 4 minus by pixels at 2",
        beside="fashion-coherence.json"),
    Run("fashion-augmented.json",
        f"{COHERENT} {OF_GRADIENTS} augmented-gradients-svm {FASHION} {GRADED} --separation 4 "
        "--augmentation clothes", "50 minutes on 2 cores", FASHION_MNIST,
        "Fashion-MNIST, with HOG features and augmentation", OF_TASKS, how=OF_AUGMENTED,
        minus=WITHOUT, beside="fashion-gradients.json"),
    Run("mnist-convnet.json", f"{TASKS} --network convnet --runs 2 --epochs 1 --n-perturbations 64",
        "an hour on 2 cores", CONVNETS, "MNIST, by the convolutional network", OF_TASKS),
    Run("mnist-convnet-gradients.json",
        f"{TASKS} --network convnet --runs 2 {DIGITS} {GRADED} {OF_CONVNET}",
        "half an hour on 2 cores", CONVNETS, "MNIST, by the convolutional network with both",
        OF_TASKS, minus="With augmentation and HOG features minus without",
        beside="mnist-convnet.json"),
    Run("mnist-rivals.json",
        f"{TASKS} --methods xavier/fcn/scratch --rivals rbf-svm label-spreading tuned-scratch",
        "an hour on 2 cores", RIVALS, "Rivals that know the images as they are", ("accuracy",),
        how=f"`tuned-scratch` {FROZEN}"),
    Run("mnist-more-rivals.json",
        f"{TASKS} --methods xavier/fcn/scratch --rivals shared-label-spreading umap-logistic",
        "20 minutes on 2 cores", RIVALS, "Rivals on graphs and embeddings of the images",
        ("accuracy",)),
    Run("mnist-image-rivals.json", f"{TASKS} {DIGITS} {GRADED} --methods xavier/fcn/scratch "
        "--rivals gradients-shared-label-spreading", "five minutes on 2 cores", RIVALS,
        "The strongest rival, told that rows are images", ("accuracy",)),
    Run("embeddings.json", "embeddings.py --draws 3", "five hours on one core",
        how=f"{IN_PARTS}; `EmbeddingClassifier` again by a later commit, but on 20-newsgroups; "
        f"LaplacianShot and UMAP {FROZEN}"),
    Run("embeddings-setfit.json", "embeddings.py --sets hwu64 stackoverflow --n-labels 1 2 5 "
        f"--draws 3 {WITH_SETFIT}", "an hour and a half on one core", how=SETFIT_NEEDS),
    Run("embeddings-setfit-twenty.json", "embeddings.py --sets hwu64 stackoverflow --n-labels 20 "
        f"--draws 1 {WITH_SETFIT}", "an hour on one core", how=SETFIT_NEEDS),
    Run("embeddings-setfit-chosen.json", "embeddings.py --sets banking77 20-newsgroups clinc150 "
        f"--n-labels 1 2 --draws 1 {WITH_SETFIT}", "an hour and a half on one core",
        how=SETFIT_NEEDS),
    Run("embeddings-setfit-chosen-five.json", "embeddings.py --sets banking77 clinc150 "
        f"--n-labels 5 --draws 1 {WITH_SETFIT}", "an hour on one core", how=SETFIT_NEEDS),
    Run("embeddings-photographs.json", "embeddings.py --sets scenes clothing --draws 5 --methods "
        "'Emb*' 'logistic*' prototypes self-training 'label spreading*' 'soft*'",
        "ten minutes on one core"),
    Run("first-labels.json", "first_labels.py", "40 minutes on one core", how=IN_PARTS),
    Run("signals.json", "signals.py", "an hour on one core",
        how=f"{IN_PARTS}, {FROZEN}, which has more methods"),
    Run("signals-two.json", f"signals.py --n-labels 2 {QUICK_ONES}", "ten minutes on one core",
        how=FROZEN),
    Run("signals-small.json", "signals.py --sets small --n-labels 1 2 5 20 --draws 10 --methods "
        "'Emb*' 'Mini*' 'label*' '*Euclidean'", "a few minutes on one core", how=FROZEN),
    Run("signals-chosen.json", f"signals.py --sets chosen {QUICK_ONES}", "ten minutes on one core",
        how=FROZEN),
    Run("small-networks.json", "small_networks.py --jobs 1", "half an hour on one core",
        how="without the tasks of `small-networks-views.json`; the five networks that do not "
        f"end in a ReLU by commit 3105093f; few images {FROZEN}"),
    Run("small-networks-views.json", "small_networks.py --jobs 1 --tasks '*, nearest neighbours' "
        "'*, two views'", "a quarter of an hour on one core"),
    Run("mnist-self-supervised.json", "self_supervised.py --jobs 1 --runs 10",
        "two hours on one core", how=f"FixMatch {FROZEN}, one choice a run"),
    Run("fashion-self-supervised.json", "self_supervised.py --jobs 1 --runs 4 --dataset "
        "fashion-mnist", "40 minutes on one core", how=f"FixMatch {FROZEN}, one choice a run"),
    Run("mnist-self-supervised-two.json", f"self_supervised.py --jobs 1 --runs 10 {OF_TWO}",
        "two hours on one core", how=FIXMATCH_OF_TWO),
    Run("fashion-self-supervised-two.json", "self_supervised.py --jobs 1 --runs 4 --dataset "
        f"fashion-mnist {OF_TWO}", "40 minutes on one core", how=FIXMATCH_OF_TWO),
    Run("self-supervised-choice.json", "self_supervised.py --jobs 1 --choose",
        "40 minutes on one core", how=FROZEN),
    Run("mnist-quick.json", "mnist_tasks.py", "three minutes on 2 cores"),
    Run("mnist-cuda.json", f"{TASKS} --runs 1 --n-labels 5 20 --methods xavier/fcn/ours "
        "xavier/fcn/ours+coherence xavier/fcn/scratch --device cuda",
        "a minute and a half on one H100 and 16 cores"),
    Run("photographs-hour.json", f"photographs.py {HOUR}", "an hour and a half on one core"),
    Run("photographs-scenes.json", f"photographs.py --set scenes {HOUR}",
        "an hour and a half on one core"),
    Run("photographs-cpu.json", "photographs.py", "20 minutes on one core"),
    Run("speed.json", "speed.py --sections step", "six minutes on 2 cores", how=BACK_TO_BACK),
    Run("speed-fits.json", "speed.py --sections fits", "four minutes on 2 cores"),
    Run("speed-against.json", "speed.py --against ../dc17dfb4", "twenty minutes on 2 cores",
        how="`timing/against.py` of commit 2208bdd4"),
    Run("speed-cuda-steps.json", "speed.py --device cuda --sections step",
        "a minute on one H100 and 16 cores", how=BACK_TO_BACK),
    Run("speed-cuda.json", "speed.py --device cuda --sections fits",
        "two minutes on one H100 and 16 cores", how="two sizes of four"),
)  # fmt: skip
"""All of them, in the order of the appendices; those that these do not have come last."""


@dataclass(frozen=True)
class Appendix:
    title: str
    short: str  # where the reader finds less
    sections: tuple[str, ...]


APPENDICES = {
    "appendix-paper": Appendix(
        "The paper in full", "In short: [the paper](paper.md).", (MAIN, KERNELS, APPENDIX)
    ),
    "appendix-mnist": Appendix(
        "MNIST in full", "In short: [MNIST and its rivals](mnist.md).", (FRESH, RIVALS)
    ),
    "appendix-fashion-mnist": Appendix(
        "Fashion-MNIST and a ConvNet in full",
        "In short: [MNIST and its rivals](mnist.md).",
        (FASHION_MNIST, CONVNETS),
    ),
}
"""The generated pages of the report, by file name; each section is in one of them."""
