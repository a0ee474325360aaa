/**
 * A cluster in motion: random changes to Services, slices, ports, policies and endpoints, the same
 * ones again for the same seed.
 */
import type { EndpointSlice } from "../../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../../lib/api/kinds/service.ts";
import type { RawObject } from "../../conformance/server.ts";
import { ADDRESSES } from "../builders/address_plan.ts";
import { testEndpointSlice, testService } from "../builders/builders.ts";
import { rawObjects } from "../builders/raw_objects.ts";

/** One change, in the form for an API server. */
export interface Change {
  readonly objects: readonly RawObject[];
  readonly deleted: readonly RawObject[];
}

/** Services that come and go. */
const CHANGING = 40;
const FAMILIES = ["IPv4", "IPv6"] as const;

/** Makes changes; {@linkcode objects} contains the result. */
export class Churn {
  readonly #random: () => number;
  readonly #objects = new Map<string, RawObject>();

  constructor(random: () => number) {
    this.#random = random;
  }

  /** All objects as they are now. */
  get objects(): readonly RawObject[] {
    return [...this.#objects.values()];
  }

  /** The next change: one object comes, changes or goes. */
  next(): Change {
    const index = Math.floor(this.#random() * CHANGING);
    const isSlice = this.#random() < 0.6;
    const [object] = isSlice
      ? rawObjects("EndpointSlice", this.#slice(index))
      : rawObjects("Service", this.#service(index));
    if (object === undefined) throw new TypeError("Cannot change anything: no object was made");
    const key = `${object.kind}/${object.metadata.name}`;
    const old = this.#objects.get(key);
    if (old !== undefined && this.#random() < 0.15) {
      this.#objects.delete(key);
      return { objects: [], deleted: [old] };
    }
    this.#objects.set(key, object);
    return { objects: [object], deleted: [] };
  }

  #pick<T>(...choices: readonly [T, ...T[]]): T {
    return choices[Math.floor(this.#random() * choices.length)] ?? choices[0];
  }

  #some<T>(all: readonly T[]): T[] {
    return all.filter(() => this.#random() < 0.5);
  }

  #service(index: number): Service {
    const family = FAMILIES[index % 2] ?? "IPv4";
    const type = this.#pick("ClusterIP", "ClusterIP", "NodePort", "LoadBalancer");
    const protocols = this.#pick(["TCP"], ["UDP"], ["TCP", "UDP"]);
    const ports = protocols.map((protocol, at) => ({
      name: `p${at}`,
      protocol,
      port: this.#pick(80, 81),
      ...(type !== "ClusterIP" && { nodePort: 31_000 + index * 2 + at }),
    }));
    const ingress = type === "LoadBalancer" && this.#random() < 0.7
      ? [{ ip: family === "IPv4" ? `1.2.3.${50 + index}` : `2001:db8:1::${50 + index}` }]
      : [];
    return testService(`changing-${index}`, {
      type,
      clusterIP: family === "IPv4" ? `172.30.1.${index + 1}` : `fd00:172:30::2${index + 10}`,
      ports,
      internalTrafficPolicy: this.#pick("Cluster", "Cluster", "Local"),
      externalTrafficPolicy: this.#pick("Cluster", "Local"),
      sessionAffinity: this.#pick("None", "ClientIP"),
      externalIPs: this.#some(
        family === "IPv4" ? [`192.168.99.${100 + index}`] : [`2001:db8:99::${100 + index}`],
      ),
      ...(this.#random() < 0.3 && {
        loadBalancerSourceRanges: [ADDRESSES[family].clientRange],
      }),
    }, { ingress });
  }

  #slice(index: number): EndpointSlice {
    const addressType = FAMILIES[index % 2] ?? "IPv4";
    const { localPods, remotePods } = ADDRESSES[addressType];
    const endpoints = [
      ...this.#some(localPods).map((address) => ({ address, nodeName: "node-a" })),
      ...this.#some(remotePods).map((address) => ({ address, nodeName: "node-b" })),
    ];
    return testEndpointSlice(`changing-${index}`, {
      name: `changing-${index}-${this.#pick("a", "b")}`,
      addressType,
      endpoints: endpoints.map(({ address, nodeName }) => ({
        addresses: [address],
        nodeName,
        conditions: this.#pick({ ready: true }, { ready: true }, {
          ready: false,
          serving: true,
          terminating: true,
        }),
      })),
      ports: [
        { name: "p0", protocol: this.#pick("TCP", "UDP"), port: 8080 },
        { name: "p1", protocol: "UDP", port: 8080 },
      ],
    });
  }
}
