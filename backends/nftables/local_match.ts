import { interfaceNameLength, LONGEST_INTERFACE_NAME } from "../../lib/net/interface_name.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import { assertNever } from "../../lib/proxy/verdict.ts";
import { EXPRESSIONS } from "./expressions.ts";

/** A packet that comes from a pod; `undefined` = that cannot be known. */
export function fromPod(detector: LocalTrafficDetector, family: IpFamily): string | undefined {
  return match(detector, family, "");
}

/** A packet that comes from elsewhere; `undefined` = that cannot be known. */
export function notFromPod(detector: LocalTrafficDetector, family: IpFamily): string | undefined {
  return match(detector, family, "!= ");
}

function match(
  detector: LocalTrafficDetector,
  family: IpFamily,
  operator: "" | "!= ",
): string | undefined {
  switch (detector.kind) {
    case "byCidr":
      return `${EXPRESSIONS[family].source} ${operator}${detector.cidr}`;
    case "byBridge":
      return `iifname ${operator}${quoted(detector.interfaceName)}`;
    case "byInterfacePrefix":
      return `iifname ${operator}${quoted(detector.prefix, wildcardAfter(detector.prefix))}`;
    case "none":
      return undefined;
    default:
      return assertNever(detector);
  }
}

/** A prefix of full length is a whole name; with a star after it nft finds it too long. */
function wildcardAfter(prefix: string): "" | "*" {
  return interfaceNameLength(prefix) < LONGEST_INTERFACE_NAME ? "*" : "";
}

/**
 * Quotes the name of an interface for nft. Its strings cannot contain a quote or a line break, and
 * a star at the end would mean a prefix.
 */
function quoted(name: string, end: "" | "*" = ""): string {
  if (/["\\\s*]/.test(name)) {
    throw new RangeError(
      `Cannot write a rule for the interface '${name}': nft can't quote its name; it may hold no ` +
        "quote, backslash, star or blank",
    );
  }
  return `"${name}${end}"`;
}
