'use strict';
const http = require('http');
const { parse } = require('./parse');

var app = exports = module.exports = {};

/**
 * Start it.
 */
app.listen = function listen(port) {
  return http.createServer(this).listen(port);
};

exports.route = (path) => parse(path);

Server.prototype.close = function () { this.end(); };

const api = {
  get(url) { return parse(url); },
  post: function (url) {},
  limit: 3,
};

class Queue extends Array {
  #size = 0;
  push(x) { super.push(x); this.grow(); }
  grow() {}
}
