(comment) @comment

(class name: (_) @name) @definition.class
(module name: (_) @name) @definition.class
(singleton_class value: (self)) @definition.implementation
(method name: (_) @name) @definition.function
(singleton_method object: (constant)? @scope name: (_) @name) @definition.method
(singleton_method name: (_) @name) @definition.method
(assignment
  left: (constant) @name
  right: (call receiver: (constant) @_struct method: (identifier) @_new)
  (#match? @_struct "^(Struct|Class|Module|Data)$") (#match? @_new "^(new|define)$")) @definition.class
(assignment left: (constant) @name) @definition.constant
(alias name: (identifier) @name) @declaration.method

(call
  method: (identifier) @_require
  arguments: (argument_list . (string (string_content) @source))
  (#match? @_require "^(require|require_relative|load)$")) @reference.import
(call
  !receiver
  method: (identifier) @_include
  arguments: (argument_list [(constant) @name (scope_resolution name: (constant) @name)])
  (#match? @_include "^(include|extend|prepend)$")) @reference.inherit
(superclass [(constant) @name (scope_resolution name: (constant) @name)]) @reference.inherit
(call
  receiver: [(constant) (self) (identifier)] @receiver
  method: [(identifier) (constant)] @name) @reference.call
(call receiver: (scope_resolution) @owner method: (identifier) @name) @reference.call
(call receiver: (_) method: (identifier) @name) @reference.member
(call
  !receiver
  method: (identifier) @name
  (#not-match? @name "^(require|require_relative|load|include|extend|prepend|attr_reader|attr_accessor|attr_writer|private|public|protected|raise|puts)$"))
  @reference.call
