import type { EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../api/kinds/endpoints.ts";
import type { Node } from "../../api/kinds/node.ts";
import { SERVICE_NAME_LABEL } from "../../api/labels.ts";
import { type IpAddress, isLoopback, tryParseIpAddress } from "../../net/ip_address.ts";
import { type Port, tryParsePort } from "../../net/port.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { KnownHost } from "../../proxy/frontend_owners.ts";
import { namespacedNameOf } from "../../proxy/service_port_name.ts";

/** The name of the API server in messages. */
export const API_SERVER = "the API server";

type Hosts = ReadonlyMap<IpAddress, KnownHost>;

const NO_HOSTS: Hosts = new Map();

/** The machines that this node has to reach, from several sources. */
export class HostRegistry {
  readonly #sources = new Map<string, Hosts>();
  readonly #byAddress = new Map<IpAddress, Map<string, KnownHost>>();
  readonly #onChange: (address: IpAddress, host: KnownHost | undefined) => void;

  /** `onChange` is called for each address whose machine is new, another one, or unknown again. */
  constructor(onChange: (address: IpAddress, host: KnownHost | undefined) => void) {
    this.#onChange = onChange;
  }

  /** The machine that has an address; `undefined` = none that is known. */
  get(address: IpAddress): KnownHost | undefined {
    const hosts = [...this.#byAddress.get(address)?.values() ?? []];
    const [first] = hosts;
    if (first === undefined) return undefined;
    const ports = [...new Set(hosts.flatMap(({ ports = [] }) => ports))].sort();
    const isNode = hosts.some((host) => host.isNode);
    return { owner: first.owner, ...(ports.length > 0 && { ports }), ...(isNode && { isNode }) };
  }

  /** Replaces the machines of a source. */
  set(source: string, hosts: Hosts): void {
    const before = this.#sources.get(source) ?? NO_HOSTS;
    if (hosts.size > 0) this.#sources.set(source, hosts);
    else this.#sources.delete(source);
    for (const address of new Set([...before.keys(), ...hosts.keys()])) {
      const host = hosts.get(address);
      if (isLoopback(address) || deepEqual(before.get(address), host)) continue;
      const known = this.#byAddress.getOrInsertComputed(address, () => new Map());
      if (host === undefined) known.delete(source);
      else known.set(source, host);
      if (known.size === 0) this.#byAddress.delete(address);
      this.#onChange(address, this.get(address));
    }
  }

  /** Takes a slice of any Service: only those of the API server name machines. */
  onSlice(previous: EndpointSlice | undefined, current: EndpointSlice | undefined): void {
    const slice = current ?? previous!;
    const { namespace } = namespacedNameOf(slice);
    const name = slice.metadata.labels?.[SERVICE_NAME_LABEL];
    const isApi = namespace === "default" && name === "kubernetes" && current !== undefined;
    const hosts = isApi ? hostsOfSlice(slice) : NO_HOSTS;
    this.set(`EndpointSlice ${namespace}/${slice.metadata.name}`, hosts);
  }

  /** As {@linkcode onSlice}. */
  onEndpoints(previous: Endpoints | undefined, current: Endpoints | undefined): void {
    const { namespace, name } = namespacedNameOf(current ?? previous!);
    if (namespace !== "default" || name !== "kubernetes") return;
    this.set("Endpoints", current === undefined ? NO_HOSTS : hostsOfEndpoints(current));
  }

  /** Takes another Node; `undefined` = it was deleted. */
  onNode(name: string, node: Node | undefined): void {
    const addresses = node?.status.addresses?.map(({ address }) => address) ?? [];
    this.set(`Node ${name}`, hostsAt(addresses, { owner: `node ${name}`, isNode: true }));
  }
}

/** Returns one machine at each of these addresses; texts that are none are left out. */
export function hostsAt(addresses: Iterable<string>, host: KnownHost): Hosts {
  return new Map(
    [...addresses].flatMap((text) => tryParseIpAddress(text) ?? []).map((each) => [each, host]),
  );
}

function hostsOfSlice({ endpoints, ports }: EndpointSlice): Hosts {
  const addresses = (endpoints ?? []).flatMap(({ addresses }) => addresses);
  return hostsAt(addresses, { owner: API_SERVER, ports: portsOf(ports) });
}

function hostsOfEndpoints({ subsets }: Endpoints): Hosts {
  return new Map(
    (subsets ?? []).flatMap(({ addresses, notReadyAddresses, ports }) => {
      const texts = [...addresses ?? [], ...notReadyAddresses ?? []].map(({ ip }) => ip);
      return [...hostsAt(texts, { owner: API_SERVER, ports: portsOf(ports) })];
    }),
  );
}

function portsOf(
  ports: readonly { readonly port?: number | null | undefined }[] | null | undefined,
): readonly Port[] {
  return (ports ?? []).flatMap(({ port }) => tryParsePort(Number(port)) ?? []);
}
