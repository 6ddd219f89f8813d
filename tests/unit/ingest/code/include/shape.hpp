#pragma once
#include <vector>
#include "base/shape_base.hpp"

namespace geo::detail {

/// A shape. Has an area.
template <typename T>
class Shape : public Base<T>, private geo::Other {
public:
    explicit Shape(int n) : n_(n) {}
    virtual ~Shape() = default;
    /// The area.
    virtual double area() const = 0;
    bool operator==(const Shape& other) const { return same(other); }
    template <typename U> U as() const { return U(n_); }
private:
    bool same(const Shape& other) const;
    int n_;
};

enum class Color { Red, Green };
using Shapes = std::vector<Shape<int>>;

template <typename T>
bool Shape<T>::same(const Shape& other) const {
    helper(this->area());
    return geo::compare(*this, other);
}

void helper(double x) { std::max(x, 1.0); }

}  // namespace geo::detail

int main(int argc, char** argv) { geo::detail::helper(1); return 0; }
