"""cuBLAS, libcublas.so and libcublasLt.so, for programs of C++ that link them.

Where the order in which the library adds up is known (matrix/instruction/cublas.py), a product has its bits; other products are
sums of NumPy in the library's type of sums. Data comes in and goes out as addresses of device memory. names.py has what is
exported, rows.py registers functions, matrices.py multiplies, and routines.py, products.py and lt.py are the functions.
"""
