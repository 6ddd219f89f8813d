(line_comment) @comment
(block_comment) @comment
(attribute_item) @attribute

(function_item name: (_) @name) @definition.function
(function_signature_item name: (_) @name) @declaration.function
(struct_item name: (_) @name) @definition.struct
(enum_item name: (_) @name) @definition.enum
(union_item name: (_) @name) @definition.union
(trait_item name: (_) @name) @definition.trait
(type_item name: (_) @name) @declaration.type
(macro_definition name: (_) @name) @definition.macro
(impl_item type: [
  (type_identifier) @name
  (generic_type type: [(type_identifier) (scoped_type_identifier)] @name)
  (scoped_type_identifier) @name
  (reference_type type: (type_identifier) @name)
  (primitive_type) @name]) @definition.implementation
(mod_item name: (_) @name body: (_)) @definition.namespace
(const_item name: (_) @name) @definition.constant
(static_item name: (_) @name) @definition.constant

(use_declaration argument: (_) @source) @reference.import
(mod_item name: (_) @name !body) @reference.import
(extern_crate_declaration name: (_) @source) @reference.import
(call_expression function: (identifier) @name) @reference.call
(call_expression
  function: (scoped_identifier path: (_)? @owner name: (identifier) @name)) @reference.call
(call_expression
  function: (field_expression value: [(identifier) (self)] @receiver field: (field_identifier) @name)) @reference.call
(call_expression function: (field_expression field: (field_identifier) @name)) @reference.member
(call_expression function: (generic_function function: [
  (identifier) @name
  (scoped_identifier path: (_)? @owner name: (identifier) @name)])) @reference.call
(call_expression function: (generic_function
  function: (field_expression field: (field_identifier) @name))) @reference.member
(struct_expression name: [
  (type_identifier) @name
  (scoped_type_identifier path: (_)? @owner name: (type_identifier) @name)]) @reference.call
(macro_invocation macro: [
  (identifier) @name
  (scoped_identifier path: (_)? @owner name: (identifier) @name)]) @reference.call
(impl_item trait: [
  (type_identifier) @name
  (generic_type type: (type_identifier) @name)
  (scoped_type_identifier path: (_)? @owner name: (type_identifier) @name)
  (generic_type type: (scoped_type_identifier path: (_)? @owner name: (type_identifier) @name))])
  @reference.inherit
(trait_item bounds: (trait_bounds [
  (type_identifier) @name
  (generic_type type: (type_identifier) @name)
  (scoped_type_identifier path: (_)? @owner name: (type_identifier) @name)])) @reference.inherit
