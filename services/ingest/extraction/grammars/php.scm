(comment) @comment
(attribute_list) @attribute

(namespace_definition name: (namespace_name) @package !body)
(namespace_definition name: (namespace_name) @name body: (_)) @definition.namespace
(class_declaration name: (name) @name) @definition.class
(interface_declaration name: (name) @name) @definition.interface
(trait_declaration name: (name) @name) @definition.trait
(enum_declaration name: (name) @name) @definition.enum
(method_declaration name: (name) @name) @definition.method
(function_definition name: (name) @name) @definition.function
(const_declaration (const_element (name) @name)) @definition.constant
(expression_statement (function_call_expression
  function: (name) @_define
  arguments: (arguments . (argument (string (string_content) @name)))
  (#eq? @_define "define"))) @definition.constant

(namespace_use_declaration (namespace_use_clause . [(qualified_name) (name)] @source alias: (name)? @alias))
  @reference.import
(namespace_use_declaration
  (namespace_name) @source
  body: (namespace_use_group (namespace_use_clause . [(qualified_name) (name)] @name alias: (name)? @alias)))
  @reference.import
(include_expression (string (string_content) @path)) @reference.import
(include_once_expression (string (string_content) @path)) @reference.import
(require_expression (string (string_content) @path)) @reference.import
(require_once_expression (string (string_content) @path)) @reference.import
(require_once_expression (binary_expression right: (string (string_content) @path))) @reference.import
(require_expression (binary_expression right: (string (string_content) @path))) @reference.import
(function_call_expression function: [(name) (qualified_name)] @name (#not-eq? @name "define")) @reference.call
(member_call_expression object: (variable_name) @receiver name: (name) @name) @reference.call
(member_call_expression name: (name) @name) @reference.member
(nullsafe_member_call_expression name: (name) @name) @reference.member
(scoped_call_expression
  scope: [(name) (qualified_name) (relative_scope)] @owner name: (name) @name) @reference.call
(object_creation_expression [(name) (qualified_name)] @name) @reference.call
(base_clause [(name) (qualified_name)] @name) @reference.inherit
(class_interface_clause [(name) (qualified_name)] @name) @reference.inherit
(class_declaration body: (declaration_list (use_declaration [(name) (qualified_name)] @name) @reference.inherit))
(trait_declaration body: (declaration_list (use_declaration [(name) (qualified_name)] @name) @reference.inherit))
(attribute [(name) (qualified_name)] @name) @reference.decorate
