(comment) @comment
(attribute_list) @attribute

(file_scoped_namespace_declaration name: (_) @package)
(namespace_declaration name: (_) @name) @definition.namespace
(class_declaration name: (_) @name) @definition.class
(interface_declaration name: (_) @name) @definition.interface
(struct_declaration name: (_) @name) @definition.struct
(record_declaration name: (_) @name) @definition.record
(enum_declaration name: (_) @name) @definition.enum
(delegate_declaration name: (_) @name) @declaration.type
(method_declaration name: (_) @name) @definition.method
(constructor_declaration name: (_) @name) @definition.method
(destructor_declaration name: (_) @name) @definition.method
((operator_declaration operator: _ @name) @definition.method (#set! prefix "operator"))
(local_function_statement name: (_) @name) @definition.function
(property_declaration name: (_) @name) @declaration.method
(event_declaration name: (_) @name) @declaration.method
((field_declaration (modifier) @_modifier (variable_declaration (variable_declarator name: (_) @name)))
  @definition.constant (#match? @_modifier "^const$"))

(using_directive name: (identifier) @alias (_) @source .) @reference.import
(using_directive (_) @source .) @reference.import
(invocation_expression function: [
  (identifier) @name
  (generic_name (identifier) @name)]) @reference.call
(invocation_expression function: (member_access_expression
  expression: ["this" "base" (identifier)] @receiver name: [(identifier) @name (generic_name (identifier) @name)]))
  @reference.call
(invocation_expression function: (member_access_expression
  name: [(identifier) @name (generic_name (identifier) @name)])) @reference.member
(invocation_expression function: (conditional_access_expression
  (member_binding_expression name: [(identifier) @name (generic_name (identifier) @name)]))) @reference.member
(object_creation_expression type: [
  (identifier) @name
  (generic_name (identifier) @name)
  (qualified_name name: (identifier) @name)]) @reference.call
(base_list [
  (identifier) @name
  (generic_name (identifier) @name)
  (qualified_name name: (identifier) @name)
  (primary_constructor_base_type type: (identifier) @name)]) @reference.inherit
(attribute name: (identifier) @name) @reference.decorate
