-- Users of the shop.
-- Second line.
CREATE TABLE IF NOT EXISTS public.users (
  id bigint PRIMARY KEY,
  name text NOT NULL
);

CREATE UNIQUE INDEX users_name ON public.users (name);

/* Active ones. */
CREATE OR REPLACE VIEW active_users AS
SELECT u.id FROM public.users u JOIN orders o ON o.user_id = u.id WHERE active(u.id);

CREATE MATERIALIZED VIEW mv AS SELECT 1;

CREATE FUNCTION add_user(n text) RETURNS bigint AS $$
  INSERT INTO users (name) VALUES (n) RETURNING id;
$$ LANGUAGE sql;

CREATE PROCEDURE touch(a int) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1;
END $$;

CREATE TRIGGER t_users BEFORE INSERT ON users FOR EACH ROW EXECUTE FUNCTION add_user();

CREATE TYPE mood AS ENUM ('sad', 'ok');

DELIMITER //
CREATE PROCEDURE `settle`(IN customer INT)
BEGIN
  IF customer > 0 THEN
    UPDATE orders SET state = 'paid; settled' WHERE id = customer;
  END IF;
  CALL touch(customer);
END //
DELIMITER ;

INSERT INTO users VALUES (1, 'x');
ALTER TABLE users ADD COLUMN z int;
SELECT * FROM users;
