"""poolmuster: which model-serving pools are alive, what do they serve, and is the list complete?"""

__version__ = "0.1.0"
