#include "script/lexer.h"

#include <cctype>

#include "core/error.h"

namespace fl::script {
namespace {

constexpr std::string_view kLongMarks[] = {"**", "//", "->", "==", "!=", "<=", ">=", "<<", ">>", "..."};

bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || (static_cast<unsigned char>(c) & 0x80);
}
bool continues_name(char c) {
  return begins_name(c) || std::isdigit(static_cast<unsigned char>(c));
}
bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& file) : source_(source), file_(file) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      if (begins_line_ && !indentation()) continue;
      next();
    }
    if (!tokens_.empty() && tokens_.back().kind != TokenKind::Newline) add(TokenKind::Newline, "");
    for (; indents_.size() > 1; indents_.pop_back()) add(TokenKind::Dedent, "");
    add(TokenKind::End, "");
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  [[noreturn]] void refuse(const char* expected) const {
    fail("[jit.load] expected ", expected, " in ", file_, ", line ", line_);
  }

  // Reads the spaces that begin a line; false where the line is empty.
  bool indentation() {
    size_t width = 0;
    while (peek() == ' ') ++width, ++at_;
    if (peek() == '\n' || peek() == '#' || peek() == '\r' || at_ == source_.size()) {
      while (at_ < source_.size() && peek() != '\n') ++at_;
      if (at_ < source_.size()) ++at_, ++line_;
      return false;
    }
    begins_line_ = false;
    if (width > indents_.back()) {
      indents_.push_back(width);
      add(TokenKind::Indent, "");
    }
    while (width < indents_.back()) {
      indents_.pop_back();
      add(TokenKind::Dedent, "");
    }
    if (width != indents_.back()) refuse("lines that are indented alike");
    return true;
  }

  void next() {
    const char c = peek();
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '\\' && peek(1) == '\n') {
      at_ += 2;
      ++line_;
    } else if (c == '\n') {
      if (brackets_ == 0) {
        add(TokenKind::Newline, "");
        begins_line_ = true;
      }
      ++at_;
      ++line_;
    } else if (c == '#') {
      while (at_ < source_.size() && peek() != '\n') ++at_;
    } else if (c == '"' || c == '\'') {
      string();
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else if (begins_name(c)) {
      const size_t first = at_;
      while (continues_name(peek()) && at_ < source_.size()) ++at_;
      add(TokenKind::Name, std::string(source_.substr(first, at_ - first)));
    } else {
      mark();
    }
  }

  void mark() {
    std::string_view text = source_.substr(at_, 1);
    for (std::string_view known : kLongMarks)
      if (source_.substr(at_, known.size()) == known) {
        text = known;
        break;
      }
    if (text.size() == 1 &&
        std::string_view("()[]{}:,.=+-*/%<>&|^~@;").find(text[0]) == std::string_view::npos)
      refuse("TorchScript");
    if (text == "(" || text == "[" || text == "{") ++brackets_;
    if ((text == ")" || text == "]" || text == "}") && brackets_ > 0) --brackets_;
    add(TokenKind::Mark, std::string(text));
    at_ += text.size();
  }

  void number() {
    const size_t first = at_;
    bool integral = true;
    const auto digits = [&] {
      while (is_digit(peek()) || peek() == '_') ++at_;
    };
    digits();
    if (peek() == '.') integral = false, ++at_, digits();
    if (peek() == 'e' || peek() == 'E') {
      integral = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
    std::string text(source_.substr(first, at_ - first));
    if (peek() == 'j') {
      ++at_;
      add(TokenKind::Imaginary, std::move(text));
    } else {
      add(integral ? TokenKind::Integer : TokenKind::Float, std::move(text));
    }
  }

  // The character that an escape stands for; `at_` is behind the backslash.
  char escape() {
    const char c = source_[at_++];
    const auto digits = [&](int base, int most) {
      int value = 0;
      for (int i = 0; i < most && std::isxdigit(static_cast<unsigned char>(peek())); ++i) {
        const std::string one(1, peek());
        const int digit = std::stoi(one, nullptr, 16);
        if (digit >= base) break;
        value = value * base + digit;
        ++at_;
      }
      return static_cast<char>(value);
    };
    switch (c) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'a':
        return '\a';
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'x':
        return digits(16, 2);
      default:
        if (c < '0' || c > '7') return c;
        --at_;
        return digits(8, 3);
    }
  }

  void string() {
    const char quote = source_[at_++];
    std::string text;
    while (peek() != quote) {
      if (at_ >= source_.size() || peek() == '\n') refuse("the end of a string");
      const char c = source_[at_++];
      if (c == '\\' && at_ < source_.size())
        text += escape();
      else
        text += c;
    }
    ++at_;
    add(TokenKind::String, std::move(text));
  }

  std::string_view source_;
  const std::string& file_;
  size_t at_ = 0;
  int32_t line_ = 1;
  int brackets_ = 0;
  bool begins_line_ = true;
  std::vector<size_t> indents_{0};
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& file) {
  return Lexer(source, file).run();
}

}  // namespace fl::script
