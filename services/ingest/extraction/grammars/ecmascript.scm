; What JavaScript and TypeScript share.
; Patterns that come first win where several capture one name; the widest span of those counts.
(comment) @comment
(decorator) @attribute

(class_declaration name: (_) @name) @definition.class
(variable_declarator name: (identifier) @name value: (class)) @definition.class
(assignment_expression left: (identifier) @name right: (class)) @definition.class
(assignment_expression
  left: (member_expression object: [(identifier) (member_expression)] @scope property: (property_identifier) @name)
  right: (class)) @definition.class
(export_statement "default" value: (class !name) @definition.class (#set! name "default"))

(function_declaration name: (_) @name) @definition.function
(generator_function_declaration name: (_) @name) @definition.function
(variable_declarator
  name: (identifier) @name
  value: [(arrow_function) (function_expression) (generator_function)]) @definition.function
(assignment_expression
  left: (identifier) @name
  right: [(arrow_function) (function_expression) (generator_function)]) @definition.function
(assignment_expression
  left: (member_expression
    object: [(identifier) (member_expression) (this)] @scope
    property: [(property_identifier) (private_property_identifier)] @name)
  right: [(arrow_function) (function_expression) (generator_function)]) @definition.function
(export_statement "default"
  value: [(arrow_function) (function_expression !name) (generator_function !name)] @definition.function
  (#set! name "default"))
(program
  [(lexical_declaration
     (variable_declarator
       name: (identifier) @name
       value: (call_expression
         function: [(identifier) @_wrapper (member_expression property: (_) @_wrapper)]
         arguments: (arguments . [(arrow_function) (function_expression)]))) @definition.function)
   (export_statement
     declaration: (lexical_declaration
       (variable_declarator
         name: (identifier) @name
         value: (call_expression
           function: [(identifier) @_wrapper (member_expression property: (_) @_wrapper)]
           arguments: (arguments . [(arrow_function) (function_expression)]))) @definition.function))]
  (#match? @_wrapper "^(memo|forwardRef|observer|defineComponent|asyncHandler|wrap|cache)$"))

; Object literals that have a name of their own.
(variable_declarator
  name: (identifier) @scope
  value: (object [
    (method_definition name: (_) @name) @definition.method
    (pair key: (_) @name value: [(arrow_function) (function_expression) (generator_function)]) @definition.method]))
(assignment_expression
  left: (member_expression) @scope
  right: (object [
    (method_definition name: (_) @name) @definition.method
    (pair key: (_) @name value: [(arrow_function) (function_expression) (generator_function)]) @definition.method]))
(export_statement
  value: (object (pair key: (_) @name
    value: [(arrow_function) (function_expression) (generator_function)]) @definition.method))
(method_definition name: (_) @name) @definition.method

(program
  [(lexical_declaration (variable_declarator name: (identifier) @name) @definition.constant)
   (variable_declaration (variable_declarator name: (identifier) @name) @definition.constant)
   (export_statement
     declaration: [
       (lexical_declaration (variable_declarator name: (identifier) @name) @definition.constant)
       (variable_declaration (variable_declarator name: (identifier) @name) @definition.constant)])])

(import_statement source: (string (string_fragment) @source)) @reference.import
(import_statement
  (import_clause [
    (identifier) @alias
    (namespace_import (identifier) @alias) @all
    (named_imports (import_specifier name: (_) @name alias: (_)? @alias))])
  source: (string (string_fragment) @source)) @reference.import
(export_statement source: (string (string_fragment) @source)) @reference.import
(export_statement
  (export_clause (export_specifier name: (_) @name))
  source: (string (string_fragment) @source)) @reference.import
(call_expression
  function: [(identifier) @_require (import)]
  arguments: (arguments . (string (string_fragment) @source))
  (#eq? @_require "require")) @reference.import
(variable_declarator
  name: [
    (identifier) @alias
    (object_pattern [
      (shorthand_property_identifier_pattern) @name
      (pair_pattern key: (_) @name value: (identifier) @alias)])]
  value: (call_expression
    function: (identifier) @_require
    arguments: (arguments . (string (string_fragment) @source)))
  (#eq? @_require "require")) @reference.import

(call_expression function: (identifier) @name (#not-eq? @name "require")) @reference.call
(call_expression
  function: (member_expression object: [(identifier) (this) (super)] @receiver property: (_) @name)) @reference.call
(call_expression function: (member_expression property: (_) @name)) @reference.member
(new_expression constructor: (identifier) @name) @reference.call
(new_expression constructor: (member_expression property: (_) @name)) @reference.member
(decorator (identifier) @name) @reference.decorate
(decorator (call_expression function: (identifier) @name)) @reference.decorate
