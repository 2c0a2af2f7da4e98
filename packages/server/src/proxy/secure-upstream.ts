/** TLS towards a server inside that speaks nothing else (`network.httpsPorts`). */
import type { Duplex } from "node:stream";
import { connect } from "node:tls";

const HANDSHAKE_TIMEOUT_MS = 30_000;

/**
 * The certificate is not looked at: servers inside make their own, and the connection leads to this very sandbox without
 * leaving the host. Rejects, and closes the connection, if whoever listens does not speak TLS.
 */
export function secureUpstream(socket: Duplex): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const secured = connect({ socket, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] });
    const fail = (error: Error) => {
      clearTimeout(timer);
      secured.destroy();
      socket.destroy();
      reject(error);
    };
    const timer = setTimeout(() => {
      fail(new Error(`no TLS handshake within ${HANDSHAKE_TIMEOUT_MS} ms`));
    }, HANDSHAKE_TIMEOUT_MS);
    const onClose = () => fail(new Error("the connection was closed before its TLS handshake was over"));
    secured.once("error", fail);
    secured.once("close", onClose);
    secured.once("secureConnect", () => {
      clearTimeout(timer);
      secured.off("error", fail);
      secured.off("close", onClose);
      secured.once("close", () => socket.destroy());
      resolve(secured);
    });
  });
}
