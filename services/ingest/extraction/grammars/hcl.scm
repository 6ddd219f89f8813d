(comment) @comment
(config_file (body (block (identifier) @block [(string_lit) (identifier)]* @label) @definition.block))
(config_file (body (attribute (identifier) @name) @definition.constant))
((block (identifier) @_locals (body (attribute (identifier) @name) @definition.constant))
  (#eq? @_locals "locals") (#set! owner "local"))
(block (identifier) @_module (body (attribute
  (identifier) @_source
  (expression (literal_value (string_lit (template_literal) @source)))) @reference.import)
  (#eq? @_module "module") (#eq? @_source "source"))
(expression . (variable_expr (identifier) @receiver) . (get_attr (identifier) @name) . (get_attr (identifier) @member)?) @reference.call
