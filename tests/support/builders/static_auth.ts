/** An identity for tests, without a file behind it. */
import type { KubeAuth, TlsMaterial } from "../../../lib/kube/kube_auth.ts";

/** A {@linkcode KubeAuth} whose answers a test may change. */
export class StaticAuth implements KubeAuth {
  readonly server: string;
  tlsMaterial: TlsMaterial;
  header: string | undefined;
  /** Called by {@linkcode refresh}. */
  onRefresh = () => {};
  /** The number of calls of {@linkcode refresh}. */
  refreshes = 0;

  constructor(server: string, tls: Partial<TlsMaterial> = {}) {
    this.server = server;
    this.tlsMaterial = { insecure: false, ...tls };
  }

  tls(): Promise<TlsMaterial> {
    return Promise.resolve(this.tlsMaterial);
  }

  authorization(): Promise<string | undefined> {
    return Promise.resolve(this.header);
  }

  refresh(): Promise<void> {
    this.refreshes++;
    this.onRefresh();
    return Promise.resolve();
  }

  describe(): ReturnType<KubeAuth["describe"]> {
    return { server: this.server, source: "kubeconfig", method: "none" };
  }
}
