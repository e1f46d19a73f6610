"""tmp"""
import numpy as np
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors
from .walk import Walk
ALGORITHMS=("auto","exact","approximate")
def neighbor_graph(X,*,n_neighbors,n_components,graph,algorithm,n_jobs,seed,memory,verbose):
    g=NearestNeighbors(n_neighbors=n_neighbors).fit(X).kneighbors_graph().astype(np.float32)
    return csr_array(g)
