(comment) @comment
(package_clause (package_identifier) @package)

(function_declaration name: (identifier) @name) @definition.function
(method_declaration
  receiver: (parameter_list (parameter_declaration type: [
    (type_identifier) @scope
    (generic_type type: (type_identifier) @scope)
    (pointer_type (type_identifier) @scope)
    (pointer_type (generic_type type: (type_identifier) @scope))]))
  name: (field_identifier) @name) @definition.method
(type_spec name: (type_identifier) @name type: [(struct_type) (interface_type)]) @definition.class
(type_spec name: (type_identifier) @name) @declaration.type
(type_alias name: (type_identifier) @name) @declaration.type
(method_elem name: (field_identifier) @name) @declaration.method
(source_file (const_declaration (const_spec name: (identifier) @name) @definition.constant))
(source_file (var_declaration (var_spec name: (identifier) @name) @definition.variable))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @definition.variable)))

(import_spec
  name: (package_identifier)? @alias
  path: (interpreted_string_literal (interpreted_string_literal_content) @source)) @reference.import
(call_expression function: (identifier) @name) @reference.call
(call_expression
  function: (selector_expression operand: (identifier) @receiver field: (field_identifier) @name)) @reference.call
(call_expression function: (selector_expression field: (field_identifier) @name)) @reference.member
(composite_literal type: (type_identifier) @name) @reference.call
(composite_literal
  type: (qualified_type package: (package_identifier) @receiver name: (type_identifier) @name)) @reference.call
; Embedded types.
(field_declaration_list (field_declaration !name type: [
  (type_identifier) @name
  (qualified_type package: (package_identifier) @receiver name: (type_identifier) @name)
  (generic_type type: (type_identifier) @name)])) @reference.inherit
(interface_type (type_elem . [
  (type_identifier) @name
  (qualified_type package: (package_identifier) @receiver name: (type_identifier) @name)] .)) @reference.inherit
