; What TypeScript has besides what it shares with JavaScript (ecmascript.scm).
(abstract_class_declaration name: (_) @name) @definition.class
(interface_declaration name: (_) @name) @definition.interface
(enum_declaration name: (_) @name) @definition.enum
(type_alias_declaration name: (_) @name) @declaration.type
(internal_module name: (_) @name) @definition.namespace
(module name: (_) @name) @definition.namespace
(function_signature name: (_) @name) @declaration.function
(method_signature name: (_) @name) @declaration.method
(abstract_method_signature name: (_) @name) @declaration.method
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @definition.method
(extends_clause value: (identifier) @name) @reference.inherit
(extends_clause value: (member_expression property: (_) @name)) @reference.inherit
(implements_clause [
  (type_identifier) @name
  (generic_type name: (type_identifier) @name)
  (nested_type_identifier name: (_) @name)]) @reference.inherit
(extends_type_clause type: [
  (type_identifier) @name
  (generic_type name: (type_identifier) @name)
  (nested_type_identifier name: (_) @name)]) @reference.inherit
