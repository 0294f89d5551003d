#include "batch/program.h"

namespace fastfeed {

const std::map<std::string, Kind>& kinds() {
  static const std::map<std::string, Kind> all = {
      {"brightness", {Code::brightness, 1}}, {"solarize", {Code::solarize, 1}},   {"posterize", {Code::posterize, 1}},
      {"invert", {Code::invert, 0}},         {"gamma", {Code::gamma, 1}},         {"lut", {Code::lut, 0}},
      {"contrast", {Code::contrast, 1}},     {"equalize", {Code::equalize, 0}},   {"autocontrast", {Code::autocontrast, 0}},
      {"grayscale", {Code::grayscale, 0}},   {"saturation", {Code::saturation, 1}}, {"hue", {Code::hue, 1}},
      {"sharpness", {Code::sharpness, 1}},   {"blur", {Code::blur, 1}},           {"noise", {Code::noise, 2}},
      {"jpeg", {Code::jpeg, 1}},             {"warp", {Code::warp, 9}},           {"erase", {Code::erase, 4}},
      {"erase_noise", {Code::erase_noise, 5}}, {"grid_mask", {Code::grid_mask, 4}}, {"window", {Code::window, 10}},
      {"augmix", {Code::augmix, -1}},       {"channels", {Code::channels, 3}},
      {"warp_to", {Code::warp, 11}},       {"solarize_add", {Code::solarize_add, 1}}, {"erase_color", {Code::erase, 7}},
      {"elastic", {Code::elastic, 3}},       {"grid_distortion", {Code::grid_distortion, -1}},
      {"motion", {Code::motion, 3}},         {"median", {Code::median, 1}},
  };
  return all;
}

}  // namespace fastfeed
