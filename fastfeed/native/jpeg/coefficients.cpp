#include "jpeg/coefficients.h"

#include <cstring>
#include <iterator>
#include <new>

#include "jpeg/bits.h"
#include "jpeg/jpeg_errors.h"

namespace fastfeed {
namespace {

// What jpeg_idct_2x2 reads: of these rows and the columns of the same numbers. Whole rows are copied faster.
constexpr int kRows[] = {0, 1, 3, 5, 7};
constexpr size_t kRowBytes = DCTSIZE * sizeof(JCOEF);

}  // namespace

void Coefficients::attach(j_decompress_ptr info) {
  libjpegs_request_ = info->mem->request_virt_barray;
  libjpegs_access_ = info->mem->access_virt_barray;
  info->mem->request_virt_barray = request;
  info->mem->access_virt_barray = access;
}

void Coefficients::choose(const jpeg_decompress_struct& info, bool all) {
  components_ = info.num_components;
  next_ = 0;
  bool some_means_only = false;
  for (int i = 0; i < components_; ++i) some_means_only |= shrunk_size(info.comp_info[i]) == 1;
  for (int i = 0; i < components_; ++i) {
    // packing costs time: of all components, at a quarter, a fifth of what decoding takes
    const int size = shrunk_size(info.comp_info[i]);
    sizes_[i] = size == 1 || (size == 2 && !all && some_means_only) ? size : DCTSIZE;
  }
}

void Coefficients::release() {
  for (Array& array : arrays_) array = Array();
  components_ = next_ = 0;
}

jvirt_barray_ptr Coefficients::request(j_common_ptr info, int pool, boolean zero, JDIMENSION columns, JDIMENSION rows,
                                       JDIMENSION most) {
  Coefficients& self = *errors_of(info).coefficients;
  const int component = self.next_++;
  if (component >= self.components_ || self.sizes_[component] == DCTSIZE)
    return self.libjpegs_request_(info, pool, zero, columns, rows, most);
  bool room = true;
  try {
    self.arrays_[component].create(self.sizes_[component], columns, rows);
  } catch (const std::bad_alloc&) {
    room = false;
  }
  if (!room) out_of_memory(info);
  return reinterpret_cast<jvirt_barray_ptr>(&self.arrays_[component]);
}

JBLOCKARRAY Coefficients::access(j_common_ptr info, jvirt_barray_ptr which, JDIMENSION first, JDIMENSION count,
                                 boolean writes) {
  Coefficients& self = *errors_of(info).coefficients;
  for (Array& array : self.arrays_) {
    if (reinterpret_cast<jvirt_barray_ptr>(&array) != which) continue;
    bool room = true;
    try {
      array.access(first, count, writes);
    } catch (const std::bad_alloc&) {
      room = false;
    }
    if (!room) out_of_memory(info);
    return array.rows();
  }
  return self.libjpegs_access_(info, which, first, count, writes);
}

void Coefficients::Array::create(int size, JDIMENSION columns, JDIMENSION rows) {
  kept_ = size == 1 ? 1 : std::size(kRows) * DCTSIZE;
  columns_ = columns;
  count_ = 0;
  packed_.assign(size_t(columns) * rows * kept_, 0);
}

void Coefficients::Array::access(JDIMENSION first, JDIMENSION count, bool writes) {
  if (first != first_ || count != count_) {
    save();
    if (count != count_) {
      blocks_.assign(size_t(count) * columns_ * DCTSIZE2, 0);
      pointers_.clear();
      for (JDIMENSION i = 0; i < count; ++i)
        pointers_.push_back(reinterpret_cast<JBLOCKROW>(blocks_.data() + size_t(i) * columns_ * DCTSIZE2));
    }
    first_ = first, count_ = count;
    load();
  }
  changed_ |= writes;
}

// Other coefficients of the blocks are left as they are: nothing that is kept or shown depends on them.
void Coefficients::Array::load() {
  const JCOEF* from = packed_.data() + size_t(first_) * columns_ * kept_;
  JCOEF* to = blocks_.data();
  for (size_t left = size_t(count_) * columns_; left; --left, from += kept_, to += DCTSIZE2) {
    if (kept_ == 1) *to = *from;
    else
      for (size_t i = 0; i < std::size(kRows); ++i) std::memcpy(to + kRows[i] * DCTSIZE, from + i * DCTSIZE, kRowBytes);
  }
}

void Coefficients::Array::save() {
  if (!changed_) return;
  JCOEF* to = packed_.data() + size_t(first_) * columns_ * kept_;
  const JCOEF* from = blocks_.data();
  for (size_t left = size_t(count_) * columns_; left; --left, to += kept_, from += DCTSIZE2) {
    if (kept_ == 1) *to = *from;
    else
      for (size_t i = 0; i < std::size(kRows); ++i) std::memcpy(to + i * DCTSIZE, from + kRows[i] * DCTSIZE, kRowBytes);
  }
  changed_ = false;
}

}  // namespace fastfeed
