"""What is kept about ops and nodes of the model beside the code of kernels."""
