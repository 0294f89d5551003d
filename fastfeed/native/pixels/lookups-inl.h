// What a register of bytes becomes by a table, on each instruction set. Included once per target, by sources that
// compile for all of them.

#if defined(FASTFEED_LOOKUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FASTFEED_LOOKUPS_INL_H_
#undef FASTFEED_LOOKUPS_INL_H_
#else
#define FASTFEED_LOOKUPS_INL_H_
#endif

#include <hwy/highway.h>

#include "pixels/forms.h"
#include "pixels/vbmi_lookup.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using U8 = hn::ScalableTag<uint8_t>;
using V8 = hn::Vec<U8>;

// Each of these has `apply`, which replaces kAtOnce registers of bytes by what the table holds for them. As many at a
// time as can share what was loaded of the table.

struct BitLookup {
  static constexpr int kAtOnce = 1;
  V8 keep, flip, from, above;
  explicit BitLookup(const BitForm& form)
      : keep(hn::Set(U8(), form.keep)), flip(hn::Set(U8(), form.flip)), from(hn::Set(U8(), form.from)),
        above(hn::Set(U8(), form.above)) {}
  HWY_INLINE void apply(V8* v) const {
    const auto above_from = hn::Eq(hn::Max(v[0], from), v[0]);
    v[0] = hn::Xor(hn::Xor(hn::And(v[0], keep), flip), hn::IfThenElseZero(above_from, above));
  }
};

// The same where nothing changes on the way.
struct MaskLookup {
  static constexpr int kAtOnce = 1;
  V8 keep, flip;
  explicit MaskLookup(const BitForm& form) : keep(hn::Set(U8(), form.keep)), flip(hn::Set(U8(), form.flip)) {}
  HWY_INLINE void apply(V8* v) const { v[0] = hn::Xor(hn::And(v[0], keep), flip); }
};

// One by one.
struct EntryLookup {
  static constexpr int kAtOnce = 1;
  const uint8_t* table;
  explicit EntryLookup(const uint8_t* entries) : table(entries) {}
  HWY_INLINE void apply(V8* v) const {
    const U8 d;
    HWY_ALIGN uint8_t bytes[HWY_MAX_BYTES];
    hn::Store(v[0], d, bytes);
    for (size_t k = 0; k < hn::Lanes(d); ++k) bytes[k] = table[bytes[k]];
    v[0] = hn::Load(d, bytes);
  }
};

#if HWY_TARGET != HWY_SCALAR

struct LineLookup {
  static constexpr int kAtOnce = 1;
  using I8 = hn::RebindToSigned<U8>;
  using W8 = hn::Vec<I8>;
  W8 rise, more, reach, step, place;
  explicit LineLookup(const LineForm& form)
      : rise(hn::LoadDup128(I8(), form.rise)), more(hn::LoadDup128(I8(), form.more)),
        reach(hn::LoadDup128(I8(), form.reach)), step(hn::LoadDup128(I8(), form.step)),
        place(hn::LoadDup128(I8(), form.place)) {}
  HWY_INLINE void apply(V8* v) const {
    const U8 d;
    const I8 signed_d;
    const hn::Repartition<uint16_t, U8> d16;
    const V8 nibble = hn::Set(d, 15);
    const auto l = hn::BitCast(signed_d, hn::And(v[0], nibble));
    const auto h = hn::BitCast(
        signed_d, hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, v[0]))), nibble));
    const auto carry = hn::VecFromMask(
        signed_d, hn::Gt(hn::TableLookupBytes(reach, h), hn::TableLookupBytes(place, l)));
    auto sum = hn::Sub(hn::TableLookupBytes(step, l), carry);
    sum = hn::SaturatedAdd(sum, hn::TableLookupBytes(rise, h));
    sum = hn::SaturatedAdd(sum, hn::TableLookupBytes(more, h));
    v[0] = hn::Xor(hn::BitCast(d, sum), hn::Set(d, 128));
  }
};

// Any table: sixteen times sixteen entries. An index outside of the sixteen gives nothing where its uppermost bit is
// set; x86 looks up by the lower four bits where it is not. So there an index that goes down by 16 each time finds all
// entries from its own sixteen back to the first, which are stored as changes from the sixteen before.
struct RowLookup {
  static constexpr int kAtOnce = 4;
  HWY_ALIGN uint8_t changes[256];
  explicit RowLookup(const uint8_t* table) {
    for (int v = 0; v < 256; ++v)
      changes[v] = uint8_t(HWY_ARCH_X86 && v % 128 >= 16 ? table[v] ^ table[v - 16] : table[v]);
  }
  HWY_INLINE void apply(V8* v) const {
    const U8 d;
    const hn::RebindToSigned<U8> signed_d;
    V8 lower[kAtOnce], upper[kAtOnce], sum[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
      lower[i] = v[i];
      upper[i] = hn::Xor(v[i], hn::Set(d, 128));
      sum[i] = hn::Zero(d);
    }
    const auto down = [&](V8 index) HWY_ATTR {
      if (!HWY_ARCH_X86) return hn::Sub(index, hn::Set(d, 16));
      return hn::BitCast(d, hn::SaturatedSub(hn::BitCast(signed_d, index), hn::Set(signed_d, 16)));
    };
    #pragma GCC unroll 1
    for (int h = 0; h < 8; ++h) {  // unrolled, compilers move what does not fit into the registers
      const V8 low_row = hn::LoadDup128(d, changes + 16 * h), high_row = hn::LoadDup128(d, changes + 128 + 16 * h);
      for (int i = 0; i < kAtOnce; ++i) {
        sum[i] = hn::Xor(sum[i], hn::TableLookupBytesOr0(low_row, lower[i]));
        sum[i] = hn::Xor(sum[i], hn::TableLookupBytesOr0(high_row, upper[i]));
        lower[i] = down(lower[i]);
        upper[i] = down(upper[i]);
      }
    }
    for (int i = 0; i < kAtOnce; ++i) v[i] = sum[i];
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
struct TableLookup {
  static constexpr int kAtOnce = 1;
  Table table;
  explicit TableLookup(const uint8_t* entries) : table(load(entries)) {}
  HWY_INLINE void apply(V8* v) const { v[0] = V8{look(table, v[0].raw)}; }
};
#else
using TableLookup = RowLookup;
#endif

// Three registers of interleaved pixels as one per channel, and back. Each place holds one channel in the first
// register, another in the second and the third one in the third, so nothing has to move; pixels are in any order.
class Deinterleaver {
 public:
  Deinterleaver() {
    const U8 d;
    HWY_ALIGN uint8_t places[HWY_MAX_BYTES];
    for (int c = 0; c < 3; ++c) {
      for (size_t j = 0; j < hn::Lanes(d); ++j) places[j] = uint8_t(j % 3 == size_t(c));
      thirds_[c] = hn::Eq(hn::Load(d, places), hn::Set(d, 1));
    }
  }
  HWY_INLINE void operator()(V8& a, V8& b, V8& c) const {
    constexpr int kFirst = int(hn::MaxLanes(U8()) % 3);  // the channel that the second register begins with
    const V8 all[3] = {a, b, c};
    a = hn::IfThenElse(thirds_[0], all[0], hn::IfThenElse(thirds_[(3 - kFirst) % 3], all[1], all[2]));
    b = hn::IfThenElse(thirds_[1], all[0], hn::IfThenElse(thirds_[(4 - kFirst) % 3], all[1], all[2]));
    c = hn::IfThenElse(thirds_[2], all[0], hn::IfThenElse(thirds_[(5 - kFirst) % 3], all[1], all[2]));
  }
  HWY_INLINE void back(V8& a, V8& b, V8& c) const {
    constexpr int kFirst = int(hn::MaxLanes(U8()) % 3);
    const V8 of[3] = {a, b, c};
    a = hn::IfThenElse(thirds_[0], of[0], hn::IfThenElse(thirds_[1], of[1], of[2]));
    b = hn::IfThenElse(thirds_[0], of[kFirst], hn::IfThenElse(thirds_[1], of[(1 + kFirst) % 3], of[(2 + kFirst) % 3]));
    c = hn::IfThenElse(thirds_[0], of[2 * kFirst % 3],
                       hn::IfThenElse(thirds_[1], of[(1 + 2 * kFirst) % 3], of[(2 + 2 * kFirst) % 3]));
  }

 private:
  hn::Mask<U8> thirds_[3];  // every third place, from 0, 1 and 2
};

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#endif
