# frozen_string_literal: true

require 'json'
require_relative '../util/money'

module Shop
  # A cart. Holds lines.
  class Cart < Base::Record
    include Enumerable
    MAX = 10
    Line = Struct.new(:sku, :count)

    attr_reader :lines

    # Adds a line.
    def add(line)
      check!(line)
      @lines.push(line)
      Util::Money.sum(lines)
    end

    def self.build(*args)
      new(*args)
    end

    class << self
      def open; end
    end

    private

    def check!(line); end
  end
end

def helper
  Shop::Cart.build
end
