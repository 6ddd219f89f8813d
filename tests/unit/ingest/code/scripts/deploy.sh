#!/usr/bin/env bash
# Deploys the app.
set -euo pipefail

source "$(dirname "$0")/lib/common.sh"
. ./env.sh

VERSION=1.2
export REGION="eu"

# Builds the image.
# Then pushes it.
build() {
  local tag=$1
  docker build -t "$tag" .
  log_info "built"
}

function push {
  build "$VERSION"
  docker push
}

push
