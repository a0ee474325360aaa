/**
 * core/v1 Service.
 *
 * @module
 */
import * as v from "valibot";
import { tryParseIpAddress } from "../../net/ip_address.ts";
import { defineKind, type ObjectOf } from "../kind.ts";
import { HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL } from "../labels.ts";
import {
  cidr,
  dnsLabel,
  fields,
  ip,
  isServableAddress,
  list,
  metadata,
  portName,
  portNumber,
  protocol,
  text,
  UID,
  wholeNumber,
} from "../schema.ts";
import { MODE_ANNOTATIONS } from "../service_annotations.ts";
import { completeService } from "./complete_service.ts";

const clusterIp = v.pipe(
  text,
  v.check(
    (input) => input === "None" || isServableAddress(tryParseIpAddress(input)),
    "has to be None, or an IPv4 or IPv6 address that is not unspecified, link-local or multicast",
  ),
);

const trafficPolicy = v.nullish(v.picklist(["Cluster", "Local"], "has to be Cluster or Local"));

const schema = fields({
  metadata: metadata(dnsLabel, {
    labels: [HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL],
    annotations: MODE_ANNOTATIONS,
    extra: UID,
  }),
  spec: fields({
    type: v.nullish(v.picklist(
      ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"],
      "has to be ClusterIP, NodePort, LoadBalancer or ExternalName",
    )),
    clusterIP: v.nullish(clusterIp),
    clusterIPs: list(clusterIp),
    ipFamilies: list(v.picklist(["IPv4", "IPv6"], "has to be IPv4 or IPv6")),
    ports: list(fields({
      name: v.nullish(portName),
      protocol: v.nullish(protocol),
      port: portNumber(1),
      nodePort: v.nullish(portNumber(0)),
    }, { unread: "appProtocol targetPort" })),
    externalIPs: list(ip),
    externalTrafficPolicy: trafficPolicy,
    internalTrafficPolicy: trafficPolicy,
    healthCheckNodePort: v.nullish(portNumber(0)),
    loadBalancerSourceRanges: list(cidr),
    sessionAffinity: v.nullish(v.picklist(["None", "ClientIP"], "has to be None or ClientIP")),
    sessionAffinityConfig: v.nullish(fields({
      clientIP: v.nullish(fields({
        timeoutSeconds: v.nullish(wholeNumber(
          { least: 1, most: 86_400 },
          "has to be a whole number of seconds between 1 and 86400 (one day)",
        )),
      })),
    })),
  }, {
    unread:
      "selector loadBalancerIP loadBalancerClass allocateLoadBalancerNodePorts externalName " +
      "publishNotReadyAddresses ipFamilyPolicy trafficDistribution",
  }),
  status: v.nullish(fields({
    loadBalancer: v.nullish(fields({
      ingress: list(fields({
        ip: v.nullish(ip),
        ipMode: v.nullish(v.picklist(["VIP", "Proxy"], "has to be VIP or Proxy")),
      }, { isOpen: true })),
    }, { isOpen: true })),
  }, { isOpen: true })),
}, { unread: "apiVersion kind" });

/** A Service as a manifest has it. */
export type ServiceManifest = v.InferOutput<typeof schema>;

/** core/v1 Service. */
export const SERVICE = defineKind({
  kind: "Service",
  group: "",
  versions: ["v1"],
  plural: "services",
  namespaced: true,
  schema,
  complete: completeService,
});

/** A Service, as far as it is read. */
export type Service = ObjectOf<typeof SERVICE>;

/** A port of a Service. */
export type ServiceSpecPort = NonNullable<Service["spec"]["ports"]>[number];
