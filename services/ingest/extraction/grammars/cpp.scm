(comment) @comment
(attribute_declaration) @attribute

(namespace_definition name: (_) @name) @definition.namespace
(class_specifier name: (_) @name body: (_)) @definition.class
(struct_specifier name: (_) @name body: (_)) @definition.struct
(union_specifier name: (_) @name body: (_)) @definition.union
(enum_specifier name: (_) @name body: (_)) @definition.enum
(concept_definition name: (_) @name) @definition.type
(template_declaration [
  (class_specifier name: (_) @name body: (_))
  (struct_specifier name: (_) @name body: (_))
  (union_specifier name: (_) @name body: (_))
  (concept_definition name: (_) @name)]) @definition.class

(function_definition declarator: [
  (function_declarator declarator: (_) @name)
  (pointer_declarator declarator: (function_declarator declarator: (_) @name))
  (reference_declarator (function_declarator declarator: (_) @name))
  (operator_cast) @name
  (qualified_identifier name: (operator_cast)) @name]) @definition.function
(template_declaration (function_definition declarator: [
  (function_declarator declarator: (_) @name)
  (pointer_declarator declarator: (function_declarator declarator: (_) @name))
  (reference_declarator (function_declarator declarator: (_) @name))])) @definition.function
(declaration declarator: [
  (function_declarator declarator: [(identifier) (qualified_identifier) (operator_name) (destructor_name)] @name)
  (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))
  (reference_declarator (function_declarator declarator: (identifier) @name))]) @declaration.function
(template_declaration (declaration declarator: (function_declarator declarator: (identifier) @name)))
  @declaration.function
(field_declaration declarator: [
  (function_declarator declarator: (_) @name)
  (pointer_declarator declarator: (function_declarator declarator: (_) @name))
  (reference_declarator (function_declarator declarator: (_) @name))]) @declaration.method
(type_definition
  type: [(struct_specifier !name) (union_specifier !name) (enum_specifier !name)]
  declarator: (type_identifier) @name) @definition.struct
(type_definition declarator: (type_identifier) @name) @declaration.type
(alias_declaration name: (type_identifier) @name) @declaration.type
(preproc_def name: (identifier) @name value: (_)) @definition.constant
(preproc_function_def name: (identifier) @name) @declaration.function
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @definition.variable)
(namespace_definition body: (declaration_list
  (declaration declarator: (init_declarator declarator: (identifier) @name)) @definition.variable))

(preproc_include path: (string_literal (string_content) @source)) @reference.import
(preproc_include path: (system_lib_string) @source) @reference.import
(call_expression function: (identifier) @name) @reference.call
(call_expression function: (qualified_identifier scope: (_)? @owner name: (_) @name)) @reference.call
(call_expression function: (field_expression argument: [(identifier) (this)] @receiver
  field: (field_identifier) @name)) @reference.call
(call_expression function: (field_expression field: (field_identifier) @name)) @reference.member
(call_expression function: (template_function name: (identifier) @name)) @reference.call
(new_expression type: [(type_identifier) @name (qualified_identifier name: (type_identifier) @name)
  (template_type name: (type_identifier) @name)]) @reference.call
(base_class_clause [(type_identifier) @name (qualified_identifier name: (type_identifier) @name)
  (template_type name: (type_identifier) @name)]) @reference.inherit
