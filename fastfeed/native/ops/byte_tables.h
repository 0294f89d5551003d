// Ops that replace each byte by another, as tables: some know theirs beforehand, some look at the image first.
#pragma once

#include "image/image.h"

namespace fastfeed {

// table: 256 entries.
void brightness_table(double factor, uint8_t* table);
void solarize_table(double threshold, uint8_t* table);
void solarize_add_table(int amount, int threshold, uint8_t* table);
void posterize_table(int bits, uint8_t* table);
void invert_table(uint8_t* table);
void gamma_table(double gamma, uint8_t* table);

// One table for all channels.
void contrast_table(const Image& image, double factor, uint8_t* table);
// One table per channel.
void equalize_tables(const Image& image, uint8_t (*tables)[256]);
void autocontrast_tables(const Image& image, uint8_t (*tables)[256]);

}  // namespace fastfeed
