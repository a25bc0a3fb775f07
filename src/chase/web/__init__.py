"""What every web server of this package needs: patience with visitors, and TLS that counts them from the start."""
