// Whether the interpreter is ending, asked without its lock.
#pragma once

#include <Python.h>

#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030D0000
#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif
#endif

namespace fastfeed {

inline bool is_finalizing() {
#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030D0000
  // in the stable ABI from 3.13 on, and under another name in 3.12: looked up by name
  using Ask = int (*)();
  static const Ask ask = [] {
    void* found = nullptr;
    for (const char* name : {"Py_IsFinalizing", "_Py_IsFinalizing"}) {
#ifdef _WIN32
      if (!found) found = reinterpret_cast<void*>(GetProcAddress(GetModuleHandleA("python3.dll"), name));
#else
      if (!found) found = dlsym(RTLD_DEFAULT, name);
#endif
    }
    return reinterpret_cast<Ask>(found);
  }();
  return ask != nullptr && ask() != 0;
#elif PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace fastfeed
