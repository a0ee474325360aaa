/**
 * Every verb, in the order of the help. Parsing, help, the manual page and the completion of shells read
 * this table.
 */
import { rawVersion, versionText } from "../../config/version.ts";
import { FROM_FORMS, TO_FORMS } from "../explain/packet_end_forms.ts";
import { ROUTING_TEXTS, type Verb } from "./commands/command.ts";

const SHELLS = ["bash", "zsh", "fish"];
const asking = () => import("./asking_verbs.ts");
const planning = () => import("./planning_verbs.ts");

export const VERBS: readonly Verb[] = [
  {
    name: "run",
    summary: "serve Services (the default without a verb)",
    examples: ["kube-relay --manifests /etc/kube-relay/manifests"],
    serves: true,
    run: async ({ loadAll }, context) => await (await planning()).runVerb(await loadAll(), context),
  },
  {
    name: "status",
    summary: "ask a running kube-relay for Services, addresses, endpoints and syncs",
    examples: [
      "kube-relay status --filter default/web",
      "kube-relay status --check",
      "kube-relay status --changes",
      "kube-relay status --watch",
      "kube-relay status --cluster --kubeconfig FILE",
    ],
    run: async (machine, context) => await (await asking()).statusVerb(machine, context),
  },
  {
    name: "doctor",
    summary: "check this machine: problems, and what works in each mode",
    examples: ["kube-relay doctor", "kube-relay doctor --mode userspace --manifests DIR --json"],
    run: async ({ loadAll }, context) =>
      await (await planning()).doctorVerb(await loadAll(), context),
  },
  {
    name: "check",
    summary: "check manifests as a start reads them, and show what they would change",
    operands: [{
      name: "PATH",
      help: "a folder or file of manifests, or - for standard input",
      many: true,
    }],
    replacesOperands: "manifests",
    operandsAreFlag: true,
    examples: [
      "kube-relay check DIR",
      "kube-relay check web.yaml policies.yaml --network-policy --json",
      "kubectl get services,endpointslices -o yaml | kube-relay check -",
    ],
    run: async ({ loadAll }, context) =>
      await (await planning()).checkVerb(await loadAll(), context),
  },
  {
    name: "explain",
    summary: "explain what happens to a packet from FROM to TO, step by step",
    operands: [
      { name: "FROM", help: `${FROM_FORMS}; or 'bgp' or 'address'` },
      {
        name: "TO",
        help: `${TO_FORMS}; a prefix after 'bgp', an address or NAMESPACE/SERVICE after 'address'`,
      },
    ],
    examples: [
      "kube-relay explain 10.244.1.7 default/web:http",
      "kube-relay explain outside node:30080",
      "kube-relay explain node 10.96.0.10:53/UDP --json",
      "kube-relay explain outside default/web --manifests DIR --mode nftables",
      "kube-relay explain shop/web-0 shop/db-0:5432",
      "kube-relay explain outside 192.0.2.10:443 --sni shop.example.com",
      "kube-relay explain --policies shop",
      "kube-relay explain address 192.0.2.10",
      "kube-relay explain address shop/web",
      "kube-relay explain bgp 192.0.2.0/28",
    ],
    replacesOperands: "policies",
    run: async (machine, context) => await (await asking()).explainVerb(machine, context),
  },
  {
    name: "render",
    summary: "print the rules for all Services, without touching the machine",
    examples: [
      "kube-relay render --mode iptables --manifests DIR --family ipv4",
      "kube-relay render --mode iptables --kubeconfig FILE --service default/web",
      "kube-relay render --from node7.json",
      "kube-relay render --mode bgp --config FILE --kubeconfig FILE",
    ],
    ownModes: ROUTING_TEXTS,
    run: async ({ loadAll }, context) =>
      await (await planning()).renderVerb(await loadAll(), context),
  },
  {
    name: "diff",
    summary: "compare the kernel with the plan, repair it, or show what other objects would change",
    examples: [
      "kube-relay diff",
      "kube-relay diff --repair",
      "kube-relay diff --service default/web --json",
      "kube-relay diff --manifests DIR",
      "kube-relay diff --from node7.json --manifests DIR",
    ],
    run: async (machine, context) => await (await asking()).diffVerb(machine, context),
  },
  {
    name: "dump",
    summary: "write the objects and the state of a running kube-relay to a file",
    operands: [{ name: "FILE", help: "a new file for the dump, or - for standard output" }],
    examples: [
      "kube-relay dump node7.json",
      "kube-relay dump - | ssh desk 'cat > node7.json'",
      "kube-relay dump --mode nftables --manifests DIR what-if.json",
    ],
    run: async ({ loadAll }, context) =>
      await (await planning()).dumpVerb(await loadAll(), context),
  },
  {
    name: "convert",
    summary: "print the settings of other software as objects of kube-relay",
    operands: [
      { name: "WHAT", help: "metallb", choices: ["metallb"] },
      {
        name: "FILE",
        help: "a file with its objects, or - for standard input; without one, the cluster is read",
        optional: true,
        many: true,
      },
    ],
    examples: [
      "kube-relay convert metallb metallb.yaml >pools.yaml",
      "kube-relay convert metallb --kubeconfig FILE",
    ],
    run: async ({ loadAll }, context) =>
      await (await planning()).convertVerb(await loadAll(), context),
  },
  {
    name: "trace",
    summary: "send one packet, or wait for one, and show its path through the rules",
    operands: [{ name: "FROM", help: FROM_FORMS }, { name: "TO", help: TO_FORMS }],
    examples: [
      "kube-relay trace node default/web:http",
      "kube-relay trace node 10.96.0.10:53/UDP --json",
      "kube-relay trace 10.244.1.7 default/web --wait 1m",
    ],
    run: async ({ loadAll }, context) =>
      await (await planning()).traceVerb(await loadAll(), context),
  },
  {
    name: "cleanup",
    summary:
      "remove everything that earlier runs or kube-proxy added to the machine (like --cleanup)",
    examples: ["kube-relay cleanup --dry-run"],
    // A node with a broken configuration needs the cleanup most; upstream refuses it.
    enoughFlags: ["state-dir", "control-socket", "tools-path", "dry-run"],
    run: async ({ loadAll }, context) =>
      await (await planning()).cleanupVerb(await loadAll(), context),
  },
  {
    name: "write-config",
    summary: "write the effective configuration to a file (like --write-config-to FILE)",
    operands: [{ name: "FILE", help: "the file to write; /dev/stdout prints it" }],
    replacesOperands: "write-config-to",
    examples: ["kube-relay write-config effective.yaml --config config.conf"],
    run: async ({ loadAll }, context) =>
      await (await planning()).writeConfigurationVerb(await loadAll(), context),
  },
  {
    name: "completion",
    summary: "print a completion script for bash, zsh or fish: verbs, flags and Services",
    operands: [{ name: "SHELL", help: SHELLS.join(", "), choices: SHELLS }],
    examples: [
      "source <(kube-relay completion bash)",
      "kube-relay completion zsh >/usr/local/share/zsh/site-functions/_kube-relay",
      "kube-relay completion fish >~/.config/fish/completions/kube-relay.fish",
    ],
    text: async (_, [shell = ""]) => (await asking()).completionScript(shell),
  },
  {
    name: "man",
    summary: "print the manual page, for man -l - or a file of section 8",
    examples: [
      "kube-relay man | man -l -",
      "kube-relay man >/usr/local/share/man/man8/kube-relay.8",
    ],
    text: async () => (await asking()).manPage(VERBS),
  },
  {
    name: "version",
    summary: "print the version (like --version; --version=raw prints more)",
    text: ({ version }) => `${version === "raw" ? rawVersion() : versionText()}\n`,
  },
  {
    name: "complete",
    summary: "print the completions of a command line",
    hidden: true,
    operands: [{ name: "WORDS", help: "the words before the cursor", optional: true, many: true }],
    run: async ({ print }, context) => await (await asking()).completeVerb(VERBS, print, context),
  },
  {
    name: "help",
    summary: "print this help (like --help), or the help of a verb",
    operands: [{ name: "VERB", help: "the verb to describe", optional: true }],
    text: async (_, [name]) => (await asking()).helpText(VERBS, name),
  },
];
