(line_comment) @comment
(block_comment) @comment
(marker_annotation) @attribute
(annotation) @attribute
(package_declaration (_) @package)

(class_declaration name: (identifier) @name) @definition.class
(interface_declaration name: (identifier) @name) @definition.interface
(enum_declaration name: (identifier) @name) @definition.enum
(record_declaration name: (identifier) @name) @definition.record
(annotation_type_declaration name: (identifier) @name) @definition.interface
(method_declaration name: (identifier) @name) @definition.method
(constructor_declaration name: (identifier) @name) @definition.method
(compact_constructor_declaration name: (identifier) @name) @definition.method
(annotation_type_element_declaration name: (identifier) @name) @declaration.method
((field_declaration (modifiers) @_modifiers declarator: (variable_declarator name: (identifier) @name))
  @definition.constant
  (#match? @_modifiers "static") (#match? @_modifiers "final"))
(constant_declaration declarator: (variable_declarator name: (identifier) @name)) @definition.constant

(import_declaration [(scoped_identifier) (identifier)] @source (asterisk)? @all) @reference.import
(method_invocation !object name: (identifier) @name) @reference.call
(method_invocation object: [(identifier) (this) (super)] @receiver name: (identifier) @name) @reference.call
(method_invocation object: (_) name: (identifier) @name) @reference.member
(method_reference . (identifier) @receiver (identifier) @name .) @reference.call
(object_creation_expression type: [
  (type_identifier) @name
  (generic_type (type_identifier) @name)
  (scoped_type_identifier (type_identifier) @name .)]) @reference.call
(superclass [(type_identifier) @name (generic_type (type_identifier) @name)
  (scoped_type_identifier (type_identifier) @name .)]) @reference.inherit
(super_interfaces (type_list [(type_identifier) @name (generic_type (type_identifier) @name)
  (scoped_type_identifier (type_identifier) @name .)])) @reference.inherit
(extends_interfaces (type_list [(type_identifier) @name (generic_type (type_identifier) @name)
  (scoped_type_identifier (type_identifier) @name .)])) @reference.inherit
(marker_annotation name: (identifier) @name) @reference.decorate
(annotation name: (identifier) @name) @reference.decorate
