// Source of TorchScript to trees: functions, and classes with their attributes and methods.
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "script/lexer.h"
#include "script/program.h"

namespace fl::script {
namespace {

constexpr int kDeepest = 100;  // expressions and blocks within each other

struct Infix {
  std::string_view mark;
  int strength;
  const char* name;
  bool compares;
};
constexpr Infix kInfix[] = {
    {"==", 1, "Eq", true},      {"!=", 1, "NotEq", true},   {"<", 1, "Lt", true},
    {"<=", 1, "LtE", true},     {">", 1, "Gt", true},       {">=", 1, "GtE", true},
    {"is", 1, "Is", true},      {"in", 1, "In", true},      {"|", 2, "BitOr", false},
    {"^", 3, "BitXor", false},  {"&", 4, "BitAnd", false},  {"<<", 5, "LShift", false},
    {">>", 5, "RShift", false}, {"+", 6, "Add", false},     {"-", 6, "Sub", false},
    {"*", 7, "Mult", false},    {"/", 7, "Div", false},     {"//", 7, "FloorDiv", false},
    {"%", 7, "Mod", false},     {"@", 7, "MatMult", false},
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& module, Program& program)
      : module_(module), tokens_(tokenize(text, module)), program_(program) {}

  void run() {
    while (peek().kind != TokenKind::End) {
      if (is_name("class")) {
        parse_class();
      } else if (is_name("def")) {
        auto function = definition(module_);
        std::string name = function->name;
        program_.functions[std::move(name)] = std::move(function);
      } else {  // op_version_set = 1, imports of old archives
        skip_line();
      }
    }
  }

 private:
  // ---------------------------------------------------------------- tokens

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }
  bool is_mark(std::string_view mark, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::Mark && peek(ahead).text == mark;
  }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::Name && peek(ahead).text == name;
  }
  bool accept(std::string_view mark) {
    if (!is_mark(mark)) return false;
    ++at_;
    return true;
  }
  bool accept_name(std::string_view name) {
    if (!is_name(name)) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void refuse(std::string_view expected) const {
    fail("[jit.load] expected ", expected, " in ", module_, ", line ", peek().line, ", got '", peek().text,
         "'");
  }
  void expect(std::string_view mark) {
    if (!accept(mark)) refuse(mark);
  }
  void expect(TokenKind kind, std::string_view what) {
    if (peek().kind != kind) refuse(what);
    take();
  }
  std::string name() {
    if (peek().kind != TokenKind::Name) refuse("a name");
    return take().text;
  }
  void skip_line() {
    while (peek().kind != TokenKind::Newline && peek().kind != TokenKind::End) take();
    while (peek().kind == TokenKind::Newline || peek().kind == TokenKind::Indent ||
           peek().kind == TokenKind::Dedent)
      take();
  }

  struct Deeper {
    explicit Deeper(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kDeepest) parser.refuse("fewer expressions within each other");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  Tree node(Op op, std::string text = "") const {
    Tree tree;
    tree.op = op;
    tree.line = peek().line;
    tree.text = std::move(text);
    return tree;
  }
  Tree constant(Object value) const {
    Tree constant = node(Op::Constant);
    constant.constant = std::move(value);
    return constant;
  }

  // ---------------------------------------------------------------- classes and functions

  void parse_class() {
    take();
    auto parsed_class = std::make_unique<Class>();
    parsed_class->name = module_ + "." + name();
    parsed_class->program = &program_;
    if (accept("(")) {
      const std::string base = is_mark(")") ? "" : name();
      parsed_class->kind = base == "Module"       ? Class::Kind::Module
                           : base == "NamedTuple" ? Class::Kind::NamedTuple
                           : base == "Enum"       ? Class::Kind::Enum
                           : base == "Interface"  ? Class::Kind::Interface
                                                  : Class::Kind::Object;
      while (!accept(")")) take_inside();
    }
    expect(":");
    expect(TokenKind::Newline, "the body of a class");
    expect(TokenKind::Indent, "the body of a class");
    while (peek().kind != TokenKind::Dedent && peek().kind != TokenKind::End) member(*parsed_class);
    if (peek().kind == TokenKind::Dedent) take();
    std::string name = parsed_class->name;
    program_.classes[std::move(name)] = std::move(parsed_class);
  }

  void take_inside() {
    if (peek().kind == TokenKind::End) refuse(")");
    take();
  }

  void end_line() {
    if (peek().kind != TokenKind::End) expect(TokenKind::Newline, "the end of the line");
  }

  void declare(Class& owner, std::string attribute, Tree type) {
    owner.attributes.push_back(std::move(attribute));
    owner.types.push_back(std::move(type));
  }

  void member(Class& owner) {
    if (is_name("def")) {
      owner.methods.push_back(definition(owner.name));
      return;
    }
    if (accept_name("pass")) return end_line();
    std::string attribute = name();
    if (attribute == "__annotations__" && !is_mark("=")) {
      expect("[");
      attribute = peek().text;
      expect(TokenKind::String, "the name of an attribute");
      expect("]");
      expect("=");
      declare(owner, attribute, expression());
    } else if (accept(":")) {
      Tree type = expression();
      if (accept("="))
        owner.constants.emplace_back(attribute, expression());
      else
        declare(owner, attribute, std::move(type));
    } else {
      expect("=");
      assigned_member(owner, attribute, expression());
    }
    end_line();
  }

  void assigned_member(Class& owner, const std::string& attribute, Tree value) {
    const std::map<std::string, std::vector<std::string>*> lists = {
        {"__parameters__", &owner.parameters},
        {"__buffers__", &owner.buffers},
        {"__forward_hooks__", &owner.hooks},
        {"__forward_pre_hooks__", &owner.pre_hooks}};
    const auto list = lists.find(attribute);
    if (attribute == "__annotations__") return;  // [], before the types of names that are no identifiers
    if (list == lists.end()) {
      owner.constants.emplace_back(attribute, std::move(value));
      return;
    }
    for (const Tree& item : value.children)
      if (item.op == Op::Constant && item.constant.is(Type::String))
        list->second->push_back(item.constant.text());
  }

  std::unique_ptr<Function> definition(const std::string& owner) {
    const Deeper deeper(*this);
    take();
    auto function = std::make_unique<Function>();
    function->name = owner + "." + name();
    function->file = module_;
    slots_.clear();
    expect("(");
    while (!accept(")")) {
      Parameter parameter;
      parameter.name = name();
      slot_of(parameter.name);
      if (accept(":")) parameter.type = expression();
      if (accept("=")) {
        parameter.has_default = true;
        parameter.default_value = expression();
      }
      function->parameters.push_back(std::move(parameter));
      if (!is_mark(")")) expect(",");
    }
    if (accept("->")) expression();
    expect(":");
    function->body = body();
    function->slots = static_cast<int32_t>(slots_.size());
    slots_.clear();
    return function;
  }

  int32_t slot_of(const std::string& variable) {
    return slots_.emplace(variable, static_cast<int32_t>(slots_.size())).first->second;
  }

  // ---------------------------------------------------------------- statements

  Tree body() {
    const Deeper deeper(*this);
    Tree block = node(Op::Block);
    if (peek().kind != TokenKind::Newline) {  // on the same line
      block.children.push_back(statement());
      return block;
    }
    take();
    expect(TokenKind::Indent, "an indented block");
    while (peek().kind != TokenKind::Dedent && peek().kind != TokenKind::End)
      block.children.push_back(statement());
    if (peek().kind == TokenKind::Dedent) take();
    return block;
  }

  Tree statement() {
    if (is_name("if")) return conditional();
    if (is_name("while")) {
      Tree loop = node(Op::While);
      take();
      loop.children.push_back(expression());
      expect(":");
      loop.children.push_back(body());
      return loop;
    }
    if (is_name("for")) return loop();
    if (is_name("with")) return with();
    if (is_name("def")) return closure();
    Tree loop = simple_statement();
    end_line();
    return loop;
  }

  Tree conditional() {
    Tree branch = node(Op::If);
    take();
    branch.children.push_back(expression());
    expect(":");
    branch.children.push_back(body());
    if (is_name("elif")) {
      branch.children.push_back(conditional());
    } else if (accept_name("else")) {
      expect(":");
      branch.children.push_back(body());
    } else {
      branch.children.push_back(node(Op::Pass));
    }
    return branch;
  }

  Tree loop() {
    Tree loop = node(Op::For);
    take();
    Tree target = targets();
    if (!accept_name("in")) refuse("in");
    loop.children.push_back(std::move(target));
    loop.children.push_back(expression());
    expect(":");
    loop.children.push_back(body());
    return loop;
  }

  Tree with() {
    Tree block = node(Op::With);
    take();
    do {
      block.children.push_back(expression());
      if (accept_name("as")) refuse("with without as");
    } while (accept(","));
    expect(":");
    block.children.push_back(body());
    return block;
  }

  // A function inside of a function: it sees the variables around it.
  Tree closure() {
    Tree definition = node(Op::Define);
    take();
    definition.slot = slot_of(name());
    expect("(");
    expect(")");
    if (accept("->")) expression();
    expect(":");
    definition.children.push_back(body());
    return definition;
  }

  Tree simple_statement() {
    if (accept_name("pass")) return node(Op::Pass);
    if (is_name("return")) {
      Tree statement = node(Op::Return);
      take();
      if (peek().kind != TokenKind::Newline) statement.children.push_back(expressions());
      return statement;
    }
    if (!assigns()) return expressions();
    Tree target = targets();
    Tree statement = node(Op::Assign);
    if (accept(":")) expression();  // the type of a variable
    expect("=");
    statement.children.push_back(expressions());
    statement.children.push_back(std::move(target));
    return statement;
  }

  // Whether the line has an assignment outside of brackets.
  bool assigns() const {
    int depth = 0;
    for (size_t i = at_; i < tokens_.size() && tokens_[i].kind != TokenKind::Newline; ++i) {
      const Token& token = tokens_[i];
      if (token.kind != TokenKind::Mark) continue;
      if (token.text == "(" || token.text == "[" || token.text == "{") ++depth;
      if (token.text == ")" || token.text == "]" || token.text == "}") --depth;
      if (depth == 0 && token.text == "=") return true;
    }
    return false;
  }

  Tree targets() {
    Tree first = target();
    if (!is_mark(",")) return first;
    Tree tuple = node(Op::Tuple);
    tuple.children.push_back(std::move(first));
    while (accept(",")) {
      if (is_mark("=") || is_mark(":") || is_name("in")) break;
      tuple.children.push_back(target());
    }
    return tuple;
  }

  Tree target() {
    if (accept("(")) {
      Tree inside = targets();
      expect(")");
      if (is_mark(".") || is_mark("[")) return trailers(std::move(inside));
      return inside;
    }
    if (peek().kind != TokenKind::Name) refuse("a variable");
    if (!is_mark(".", 1) && !is_mark("[", 1)) {
      Tree variable = node(Op::Local, take().text);
      variable.slot = slot_of(variable.text);
      return variable;
    }
    return postfix();
  }

  // ---------------------------------------------------------------- expressions

  Tree expressions() {
    Tree first = expression();
    if (!is_mark(",")) return first;
    Tree tuple = node(Op::Tuple);
    tuple.children.push_back(std::move(first));
    while (accept(",")) {
      if (peek().kind == TokenKind::Newline) break;
      tuple.children.push_back(expression());
    }
    return tuple;
  }

  Tree expression() {
    const Deeper deeper(*this);
    Tree value = junction(true);
    if (!accept_name("if")) return value;
    Tree conditional = node(Op::Condition);
    conditional.children.push_back(junction(true));
    if (!accept_name("else")) refuse("else");
    conditional.children.push_back(std::move(value));
    conditional.children.push_back(expression());
    return conditional;
  }

  Tree junction(bool is_or) {
    const std::string_view word = is_or ? "or" : "and";
    Tree first = is_or ? junction(false) : negation();
    if (!is_name(word)) return first;
    Tree operation = node(is_or ? Op::Or : Op::And);
    operation.children.push_back(std::move(first));
    while (accept_name(word)) operation.children.push_back(is_or ? junction(false) : negation());
    return operation;
  }

  Tree negation() {
    const Deeper deeper(*this);
    if (!accept_name("not")) return infix(1);
    Tree negated = node(Op::Unary, "Not");
    negated.children.push_back(negation());
    return negated;
  }

  const Infix* infix_here(int least) const {
    for (const Infix& row : kInfix)
      if (row.strength >= least && (is_mark(row.mark) || (is_name(row.mark) && row.compares))) return &row;
    return nullptr;
  }

  Tree infix(int least) {
    Tree left = unary();
    while (true) {
      const bool negated = least <= 1 && is_name("not") && is_name("in", 1);
      if (negated) take();
      const Infix* row = infix_here(least);
      if (!row) return left;
      Tree operation = node(row->compares ? Op::Compare : Op::Binary, row->name);
      take();
      if (negated) operation.text = "NotIn";
      if (operation.text == "Is" && accept_name("not")) operation.text = "IsNot";
      operation.children.push_back(std::move(left));
      operation.children.push_back(infix(row->strength + 1));
      left = std::move(operation);
    }
  }

  Tree unary() {
    const Deeper deeper(*this);
    for (const auto& [mark, name] : {std::pair{"-", "USub"}, {"~", "Invert"}, {"+", "UAdd"}})
      if (is_mark(mark)) {
        Tree operation = node(Op::Unary, name);
        take();
        operation.children.push_back(unary());
        return negated_constant(std::move(operation));
      }
    Tree base = postfix();
    if (!is_mark("**")) return base;
    Tree operation = node(Op::Binary, "Pow");
    take();
    operation.children.push_back(std::move(base));
    operation.children.push_back(unary());
    return operation;
  }

  // Numbers with a sign are constants.
  static Tree negated_constant(Tree tree) {
    Tree& operand = tree.children[0];
    if (operand.op != Op::Constant || tree.text == "Invert") return tree;
    Object& value = operand.constant;
    if (tree.text == "UAdd") return std::move(operand);
    if (value.is(Type::Int))
      value = Object(static_cast<int64_t>(-static_cast<uint64_t>(value.integer)));
    else if (value.is(Type::Float))
      value = Object(-value.number);
    else
      return tree;
    return std::move(operand);
  }

  Tree postfix() { return trailers(primary()); }

  Tree trailers(Tree value) {
    while (true) {
      if (is_mark(".")) {
        take();
        const std::string attribute = name();
        if (value.op == Op::Path) {
          value.text += "." + attribute;
          continue;
        }
        Tree member = node(Op::Attribute, attribute);
        member.children.push_back(std::move(value));
        value = std::move(member);
      } else if (is_mark("(")) {
        value = call(std::move(value));
      } else if (is_mark("[")) {
        Tree member = node(Op::Subscript);
        take();
        member.children.push_back(std::move(value));
        member.children.push_back(subscript());
        expect("]");
        value = std::move(member);
      } else {
        return value;
      }
    }
  }

  Tree call(Tree callee) {
    Tree call = node(Op::Call);
    expect("(");
    call.children.push_back(std::move(callee));
    while (!accept(")")) {
      std::string keyword;
      if (peek().kind == TokenKind::Name && is_mark("=", 1)) {
        keyword = take().text;
        take();
      }
      call.names.push_back(std::move(keyword));
      call.children.push_back(expression());
      if (!is_mark(")")) expect(",");
    }
    return call;
  }

  Tree subscript() {
    if (is_mark("]")) refuse("an index");
    std::vector<Tree> parts;
    bool tuple = false;
    do {
      if (is_mark("]")) break;
      parts.push_back(slice_or_index());
      tuple |= is_mark(",");
    } while (accept(","));
    if (!tuple) return std::move(parts[0]);
    Tree tuple_tree = node(Op::Tuple);
    tuple_tree.children = std::move(parts);
    return tuple_tree;
  }

  Tree slice_or_index() {
    Tree start = is_mark(":") ? constant(Object()) : expression();
    if (!is_mark(":")) return start;
    Tree slice = node(Op::Slice);
    slice.children.push_back(std::move(start));
    for (int i = 0; i < 2; ++i)
      slice.children.push_back(
          accept(":") && !is_mark(":") && !is_mark("]") && !is_mark(",") ? expression() : constant(Object()));
    return slice;
  }

  Tree primary() {
    const Token& token = peek();
    switch (token.kind) {
      case TokenKind::Integer: {
        const std::string& text = take().text;
        char* end = nullptr;
        errno = 0;
        const int64_t value = std::strtoll(text.c_str(), &end, 10);
        // 9223372036854775808 stands behind a minus.
        if (errno == ERANGE) return constant(Object(std::numeric_limits<int64_t>::min()));
        return constant(Object(value));
      }
      case TokenKind::Float:
        return constant(Object(std::strtod(take().text.c_str(), nullptr)));
      case TokenKind::Imaginary:
        return constant(
            definitions::from_scalar(Scalar(complex128(0, std::strtod(take().text.c_str(), nullptr)))));
      case TokenKind::String: {
        std::string text;
        while (peek().kind == TokenKind::String) text += take().text;
        return constant(Object(std::move(text)));
      }
      case TokenKind::Name:
        return named();
      case TokenKind::Mark:
        return bracketed();
      default:
        refuse("an expression");
    }
  }

  Tree named() {
    std::string text = take().text;
    static const std::set<std::string> keywords = {"if",    "else",   "for",    "while",  "def",
                                                   "class", "return", "lambda", "import", "in"};
    if (keywords.count(text)) refuse("an expression");
    const auto variable = slots_.find(text);
    if (variable != slots_.end()) {
      Tree local = node(Op::Local, text);
      local.slot = variable->second;
      return local;
    }
    if (text == "None") return constant(Object());
    if (text == "True" || text == "False") return constant(Object(text == "True"));
    if (text == "inf") return constant(Object(std::numeric_limits<double>::infinity()));
    if (text == "nan") return constant(Object(std::numeric_limits<double>::quiet_NaN()));
    return node(Op::Path, std::move(text));
  }

  Tree bracketed() {
    if (accept("(")) {
      Tree collection = node(Op::Tuple);
      bool tuple = is_mark(")");
      while (!accept(")")) {
        collection.children.push_back(expression());
        tuple |= is_mark(",");
        if (!is_mark(")")) expect(",");
      }
      return tuple ? std::move(collection) : std::move(collection.children[0]);
    }
    if (accept("[")) {
      Tree collection = node(Op::List);
      while (!accept("]")) {
        collection.children.push_back(expression());
        if (!is_mark("]")) expect(",");
      }
      return collection;
    }
    if (accept("{")) {
      Tree collection = node(Op::Dict);
      while (!accept("}")) {
        collection.children.push_back(expression());
        expect(":");
        collection.children.push_back(expression());
        if (!is_mark("}")) expect(",");
      }
      return collection;
    }
    if (accept("...")) return constant(Object::enumerator(Type::Ellipsis, 0));
    refuse("an expression");
  }

  const std::string& module_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string, int32_t> slots_;  // variables of the function that is read
  Program& program_;
};

}  // namespace

void parse_file(std::string_view text, const std::string& module, Program& program) {
  Parser(text, module, program).run();
}

int32_t Class::position(std::string_view attribute) const {
  for (size_t i = 0; i < attributes.size(); ++i)
    if (attributes[i] == attribute) return static_cast<int32_t>(i);
  return -1;
}

const Function* Class::method(std::string_view wanted) const {
  for (const auto& function : methods) {
    const std::string_view full = function->name;
    if (full.size() > wanted.size() && full.substr(full.size() - wanted.size()) == wanted &&
        full[full.size() - wanted.size() - 1] == '.')
      return function.get();
  }
  return nullptr;
}

}  // namespace fl::script
