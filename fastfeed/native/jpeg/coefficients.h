// Where libjpeg keeps the coefficients of a file with several scans between them.
//
// Of a component that is shrunk to one pixel per block, and of one that is shrunk to 2 x 2, libjpeg's inverse transforms
// read a part of the 64 (jidctred.c): no more than that part stays in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <jpeglib.h>

namespace fastfeed {

class Coefficients {
 public:
  // Takes over requests for arrays of blocks. Finds itself in the errors of `info`.
  void attach(j_decompress_ptr info);
  // What the components of the image whose header has been read need. `all`: libjpeg decodes refinements, and looks at
  // every coefficient, where it is not left out as a whole scan.
  void choose(const jpeg_decompress_struct& info, bool all);
  void release();

 private:
  // Packed blocks, and a few rows of whole ones that libjpeg works on.
  class Array {
   public:
    // Both throw std::bad_alloc.
    void create(int size, JDIMENSION columns, JDIMENSION rows);
    void access(JDIMENSION first, JDIMENSION count, bool writes);
    JBLOCKARRAY rows() { return pointers_.data(); }

   private:
    void load();
    void save();

    size_t kept_ = 0;  // coefficients of a block: the mean, or five rows of eight
    JDIMENSION columns_ = 0, first_ = 0, count_ = 0;
    bool changed_ = false;
    std::vector<JCOEF> packed_, blocks_;
    std::vector<JBLOCKROW> pointers_;
  };

  static jvirt_barray_ptr request(j_common_ptr info, int pool, boolean zero, JDIMENSION columns, JDIMENSION rows,
                                  JDIMENSION most);
  static JBLOCKARRAY access(j_common_ptr info, jvirt_barray_ptr which, JDIMENSION first, JDIMENSION count,
                            boolean writes);

  decltype(jpeg_memory_mgr::request_virt_barray) libjpegs_request_ = nullptr;
  decltype(jpeg_memory_mgr::access_virt_barray) libjpegs_access_ = nullptr;
  int sizes_[MAX_COMPONENTS] = {};  // pixels to which eight are shrunk, where a part of them is enough; else 8
  int components_ = 0, next_ = 0;   // libjpeg asks for one array after the other
  Array arrays_[MAX_COMPONENTS];
};

}  // namespace fastfeed
