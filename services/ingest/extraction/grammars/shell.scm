(comment) @comment

(function_definition name: (word) @name) @definition.function
(program (variable_assignment name: (variable_name) @name) @definition.constant)
(program (declaration_command (variable_assignment name: (variable_name) @name)) @definition.constant)

((command
   name: (command_name) @_source
   argument: [(word) (string) (raw_string) (concatenation)] @source) @reference.import
  (#any-of? @_source "source" "."))
(command name: (command_name (word) @name)) @reference.call
