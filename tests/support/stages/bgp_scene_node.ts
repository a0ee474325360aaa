/** A node of a cluster that announces Services by BGP: a kube-relay, a BIRD and a pod. */
import { eventually } from "../eventually.ts";
import type { BirdNode } from "./bgp_stage.ts";
import type { Namespace } from "./netns.ts";
import { RelayProcess } from "./relay_process.ts";

/** The settings of kube-relay on a node. */
export interface NodeSettings {
  /** The block `routing.bgp` of the configuration file. */
  readonly bgp: object;
  /** @default {"nftables"} */
  readonly mode?: string;
}

/** The addresses that are assigned to Services. */
const POOL = "203.0.113.10-203.0.113.19";

/** A node: machine N is `node-N`, 192.0.2.N, and its pod is 10.244.N.9. */
export class SceneNode {
  readonly bird: BirdNode;
  readonly pod: Namespace;
  readonly name: string;
  readonly address: string;
  readonly podAddress: string;
  readonly podCidr: string;
  /** For files of the test. */
  readonly folder: string;
  readonly #kubeconfig: () => string;
  #relay: RelayProcess | undefined;

  constructor(
    readonly number: number,
    { bird, pod, folder, kubeconfig }: {
      readonly bird: BirdNode;
      readonly pod: Namespace;
      readonly folder: string;
      readonly kubeconfig: () => string;
    },
  ) {
    this.name = `node-${number}`;
    this.address = `192.0.2.${number}`;
    this.podCidr = `10.244.${number}.0/24`;
    this.podAddress = `10.244.${number}.9`;
    this.bird = bird;
    this.pod = pod;
    this.folder = folder;
    this.#kubeconfig = kubeconfig;
  }

  get namespace(): Namespace {
    return this.bird.namespace;
  }

  get relay(): RelayProcess {
    if (this.#relay === undefined) throw new Error(`kube-relay does not run on ${this.name}`);
    return this.#relay;
  }

  /** Starts kube-relay; a former one has to have ended. */
  async startRelay({ bgp, mode = "nftables" }: NodeSettings): Promise<void> {
    const { folder, bird: { paths } } = this;
    const config = `${folder}/config.json`;
    await Deno.writeTextFile(
      config,
      JSON.stringify({
        apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
        kind: "KubeProxyConfiguration",
        mode,
        hostnameOverride: this.name,
        clientConnection: { kubeconfig: this.#kubeconfig() },
        conntrack: { maxPerCore: 0 },
        routing: {
          enabled: true,
          announce: "bgp",
          pools: [POOL],
          bgp: { enabled: true, configFile: paths.file, controlSocket: paths.socket, ...bgp },
        },
      }),
    );
    this.#relay = RelayProcess.start(this.namespace, { folder, args: [`--config=${config}`] });
  }

  /** Starts BIRD as its unit does, once kube-relay has written its configuration. */
  async startBird(): Promise<void> {
    const { file } = this.bird.paths;
    await eventually(
      `${this.name} has a configuration for BIRD`,
      () => Deno.stat(file).then(() => true, () => false),
    ).catch((cause) => {
      throw new Error(this.relay.log, { cause });
    });
    await this.bird.startBird();
  }

  /** The lines of `status` about sessions, such as `router (192.0.2.4, AS 64513): established …`. */
  async peers(): Promise<readonly string[]> {
    const { controllers = [] } = await this.relay.status();
    return controllers.flatMap(({ facts }) => facts)
      .flatMap(({ name, text }) => name === "Peer" ? [text] : []);
  }
}
