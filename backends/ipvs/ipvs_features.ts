import type { Feature } from "../netfilter/probe/feature.ts";
import type { SetFeature } from "../netfilter/probe/ipset_trial.ts";

/** The tool of IPVS. */
export const IPVSADM: Feature = {
  feature: "ipvsadm",
  required: true,
  lost: "No virtual server can be made",
  broughtBy: "install ipvsadm (Debian package ipvsadm), or name the folder that has it by " +
    "--tools-path",
};

/** IPVS itself. */
export const IPVS_OF_KERNEL: Feature = {
  feature: "ip_vs in the kernel",
  required: true,
  lost: "No virtual server can be made",
  broughtBy: "modprobe ip_vs, or a kernel with CONFIG_IP_VS, CONFIG_IP_VS_PROTO_TCP and " +
    "CONFIG_IP_VS_PROTO_UDP",
};

/** The scheduler; its name is added. */
export const SCHEDULER: Feature = {
  feature: "scheduler",
  required: true,
  lost: "Endpoints cannot be chosen",
  broughtBy: "modprobe ip_vs_NAME, or a kernel with CONFIG_IP_VS_NAME, NAME being the scheduler",
};

/** The device that holds Service addresses. */
export const DUMMY: Feature = {
  feature: "dummy device",
  required: true,
  lost: "Service addresses cannot be made local",
  broughtBy: "modprobe dummy, or a kernel with CONFIG_DUMMY; install iproute2",
};

/** The tool of sets. */
export const IPSET: Feature = {
  feature: "ipset",
  required: true,
  lost: "Rules cannot name Services",
  broughtBy: "install ipset 6.0 or newer (Debian package ipset), or name the folder that has it " +
    "by --tools-path",
};

/** The types of sets that rules refer to. */
export const SET_FEATURES: readonly SetFeature[] = [
  ["hash:ip,port family inet", "HASH_IPPORT", "cluster IPs, external IPs and load balancers"],
  ["hash:ip,port family inet6", "HASH_IPPORT", "IPv6 cluster IPs and load balancers"],
  ["hash:ip,port,ip family inet", "HASH_IPPORTIP", "a pod that reaches itself by its Service"],
  ["hash:ip,port,net family inet", "HASH_IPPORTNET", "source ranges of load balancers"],
  ["hash:ip family inet", "HASH_IP", "closing the node's own ports on Service addresses"],
  ["bitmap:port range 0-65535", "BITMAP_PORT", "node ports"],
].map(([create, option, use]) => ({
  feature: `set ${
    create!.replace(/ family inet$| range.*$/, "").replace(" family inet6", " (IPv6)")
  }`,
  required: true,
  create: create!,
  lost: `Rules for ${use}`,
  broughtBy: `modprobe ip_set_${option!.toLowerCase()}, or a kernel with CONFIG_IP_SET_${option}`,
}));
