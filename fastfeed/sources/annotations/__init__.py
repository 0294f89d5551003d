"""Boxes and masks of samples.

boxes            packs boxes, one array per image, into one array
masks            segmentation masks: arrays, or PNG files
coco             reads COCO's annotation files
"""
