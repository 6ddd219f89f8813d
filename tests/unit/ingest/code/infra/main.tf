# The bucket.
resource "aws_s3_bucket" "logs" {
  bucket = "${var.prefix}-logs"
  tags   = local.tags
}

variable "prefix" {
  description = "Prefix of names."
  type        = string
}

locals {
  tags = { team = "x" }
}

module "vpc" {
  source = "./modules/vpc"
  bucket = aws_s3_bucket.logs.id
  zone   = data.aws_availability_zones.all.names
}

output "id" { value = module.vpc.id }
terraform {
  required_version = ">= 1"
}
