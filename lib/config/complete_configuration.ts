/**
 * Fills in what depends on other fields: the addresses of the two servers, the name of the node.
 *
 * @module
 */
import { formatHostPort } from "../net/port.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "./listen_address.ts";

/** The ports of kube-proxy's two deprecated flags; `undefined` where they were not given. */
interface ServerPorts {
  readonly healthz?: number | undefined;
  readonly metrics?: number | undefined;
}

/**
 * The defaults that depend on other fields, and the spellings that stand for one value. A port of 0
 * leaves the server without an address, which turns it off; upstream does so for health, and for
 * metrics ends with an error about the empty address.
 */
export function completeConfiguration(
  configuration: KubeProxyConfiguration,
  { healthz, metrics }: ServerPorts,
): KubeProxyConfiguration {
  const { bindAddress, healthzBindAddress, metricsBindAddress, hostnameOverride } = configuration;
  const [any, loopback] = bindAddress.includes(":") ? ["::", "::1"] : ["0.0.0.0", "127.0.0.1"];
  return {
    ...configuration,
    // Blanks alone stay what they are: the validation names them.
    hostnameOverride: hostnameOverride.trim().toLowerCase() || hostnameOverride,
    healthzBindAddress: withPort(healthzBindAddress || any, healthz ?? HEALTHZ_PORT),
    metricsBindAddress: withPort(metricsBindAddress || loopback, metrics ?? METRICS_PORT),
  };
}

function withPort(text: string, port: number): string {
  if (port === 0) return "";
  const address = tryParseListenAddress(text, port);
  return address ? formatHostPort(address.hostname, address.port) : text;
}
