(comment) @comment

(function_definition declarator: [
  (function_declarator declarator: (identifier) @name)
  (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))
  (pointer_declarator declarator: (pointer_declarator declarator:
    (function_declarator declarator: (identifier) @name)))]) @definition.function
(declaration declarator: [
  (function_declarator declarator: (identifier) @name)
  (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))]) @declaration.function
(struct_specifier name: (type_identifier) @name body: (_)) @definition.struct
(union_specifier name: (type_identifier) @name body: (_)) @definition.union
(enum_specifier name: (type_identifier) @name body: (_)) @definition.enum
(type_definition
  type: [(struct_specifier !name) (union_specifier !name) (enum_specifier !name)]
  declarator: (type_identifier) @name) @definition.struct
(type_definition declarator: [
  (type_identifier) @name
  (function_declarator declarator: (parenthesized_declarator (pointer_declarator declarator: (type_identifier) @name)))
  (pointer_declarator declarator: (type_identifier) @name)]) @declaration.type
(preproc_def name: (identifier) @name value: (_)) @definition.constant
(preproc_function_def name: (identifier) @name) @declaration.function
(translation_unit (declaration declarator: [
  (init_declarator declarator: [(identifier) @name (array_declarator declarator: (identifier) @name)])
  (array_declarator declarator: (identifier) @name)
  (identifier) @name]) @definition.variable)

(preproc_include path: (string_literal (string_content) @source)) @reference.import
(preproc_include path: (system_lib_string) @source) @reference.import
(call_expression function: (identifier) @name) @reference.call
(call_expression function: (field_expression field: (field_identifier) @name)) @reference.member
