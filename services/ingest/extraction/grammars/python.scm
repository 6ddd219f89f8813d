(comment) @comment
(decorator) @attribute
(decorated_definition definition: (class_definition name: (identifier) @name)) @definition.class
(class_definition name: (identifier) @name) @definition.class
(decorated_definition definition: (function_definition name: (identifier) @name)) @definition.function
(function_definition name: (identifier) @name) @definition.function
(class_definition name: (identifier) @name body: (block . (expression_statement (string) @doc))) @definition.class
(function_definition name: (identifier) @name body: (block . (expression_statement (string) @doc))) @definition.function
(module . (expression_statement (string) @module_doc)) @_module
