/**
 * Words that are booleans to kube-proxy's YAML parser (1.1) and text to ours (1.2).
 *
 * @module
 */
import { Scalar, type ScalarTag } from "yaml";

const YES = /^(?:yes|on)$/i;

/** Takes `yes`, `no`, `on` and `off` without quotation marks for true and false. */
export const YES_AND_NO: ScalarTag = {
  tag: "tag:yaml.org,2002:bool",
  default: true,
  identify: (value) => typeof value === "boolean",
  test: /^(?:[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF)$/,
  resolve: (text) => new Scalar(YES.test(text)),
};
