import { post } from "./api";
import { notice, words } from "./store";

// logIn uses the link that the address has and removes it there. It returns whether there was one.
export async function logIn(): Promise<boolean> {
  const token = /^#login=([A-Za-z0-9]+)$/.exec(location.hash)?.[1];
  if (!token) return false;
  history.replaceState(null, "", "#/");
  try {
    await post("/session", { token });
  } catch (err) {
    notice(words(err), true);
  }
  return true;
}
