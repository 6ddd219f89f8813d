(line_comment) @comment
(block_comment) @comment
(annotation) @attribute
(package_header (qualified_identifier) @package)

(class_declaration name: (identifier) @name) @definition.class
(object_declaration name: (identifier) @name) @definition.object
(companion_object name: (identifier) @name) @definition.object
(companion_object) @definition.implementation
(function_declaration name: (identifier) @name) @definition.function
(secondary_constructor "constructor" @name) @definition.method
(type_alias type: (identifier) @name) @declaration.type
(source_file (property_declaration (variable_declaration (identifier) @name)) @definition.constant)
((property_declaration (modifiers) @_modifiers (variable_declaration (identifier) @name)) @definition.constant
  (#match? @_modifiers "const"))

(import (qualified_identifier) @source "*"? @all (identifier)? @alias) @reference.import
(call_expression . (identifier) @name) @reference.call
(call_expression . (navigation_expression [(identifier) (this_expression) (super_expression)] @receiver
  (identifier) @name .)) @reference.call
(call_expression . (navigation_expression (identifier) @name .)) @reference.member
(delegation_specifier [
  (user_type (identifier) @name . (type_arguments)? .)
  (constructor_invocation (user_type (identifier) @name . (type_arguments)? .))
  (explicit_delegation (user_type (identifier) @name . (type_arguments)? .))]) @reference.inherit
(annotation [
  (user_type (identifier) @name .)
  (constructor_invocation (user_type (identifier) @name .))]) @reference.decorate
