// Tokens of TorchScript source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fl::script {

enum class TokenKind : uint8_t {
  Name,
  Integer,
  Float,
  Imaginary,
  String,
  Mark,
  Newline,
  Indent,
  Dedent,
  End
};

struct Token {
  TokenKind kind = TokenKind::End;
  std::string text;  // of strings: their content
  int32_t line = 0;
};

std::vector<Token> tokenize(std::string_view source, const std::string& file);

}  // namespace fl::script
