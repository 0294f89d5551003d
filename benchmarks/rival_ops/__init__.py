"""The same ops by others, for `bench_augment.py`: a function (image, op, values of one sample) per
op's name.

opencv   as a good user writes it by hand, on uint8 HWC arrays
pillow   on images of Pillow's
vision   torchvision's v2, on images of Pillow's and on uint8 CHW tensors
dali     one graph per op, on DALI's processor backend
"""
